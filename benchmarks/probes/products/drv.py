"""Driver of experiment 1: python drv.py lib.so mode"""
import ctypes, sys, os, json, statistics, torch
torch.backends.cuda.matmul.allow_tf32 = False
lib = ctypes.CDLL(sys.argv[1]); name = os.path.basename(sys.argv[1])
I, V = ctypes.c_int64, ctypes.c_void_p
lib.ws.restype = I; lib.ws.argtypes = [I]*5+[ctypes.c_int]
i = ctypes.c_int
lib.gemm.argtypes = [V,V,V,I,I,I,I,i,i,i,i,i,i,i,V,V]
def say(*a): print(name, *a, flush=True)
_ws = {}
def gemm(a, b, out, stack, m, k, n, ta=0, tb=0, bstack=1, splits=1, group=8, mode=0, which=7, ws=None):
    if ws is None: ws = torch.full((lib.ws(stack,m,k,n,bstack,splits)+256,), 255, dtype=torch.uint8, device='cuda')
    r = lib.gemm(a.data_ptr(), b.data_ptr(), out.data_ptr(), stack,m,k,n,ta,tb,bstack,splits,group,mode,which,ws.data_ptr(), torch.cuda.current_stream().cuda_stream)
    if r: raise RuntimeError(f"code {r}")
    return ws
def err(out, ref):
    s = ref.square().mean().sqrt()
    d = (out.double()-ref)
    return (d.square().mean().sqrt()/s).item(), (d.abs()/(ref.abs()+s)).max().item()
g = torch.Generator('cuda').manual_seed(1)
def rnd(*s): return torch.randn(*s, device='cuda', generator=g)
def dist(x, kind, flat=False):
    if kind=='normal': return x
    if kind=='large': return x*100
    if kind=='small': return x*0.01
    if kind=='positive': return x.abs()
    if kind=='offset': return x+300
    if kind=='integers': return torch.randint(-4,5,x.shape,device='cuda',generator=g).float()
    if kind=='heavy': return x*torch.exp(1.5*rnd(*x.shape))
    if kind=='rowconst': return x[...,:1].expand_as(x).contiguous()
    if kind=='sparse': return x*(torch.rand(x.shape,device='cuda',generator=g)<0.1)
    if kind=='spiked':
        w=torch.randint(x.shape[-1],(*x.shape[:-1],1),device='cuda',generator=g); return x.scatter(-1,w,1e4)
    if kind=='mixed': return x*torch.exp2(torch.randint(-40,40,(x.shape[0],1),device='cuda',generator=g).float())
    if kind=='wide': return x*torch.exp2(torch.randint(-12,13,x.shape,device='cuda',generator=g).float())
    if kind=='extreme': y=x.clone(); y[:3]*=2.0**100; y[3:6]*=2.0**-90; return y
def limit(K): return 2**-24*(1+1.5*(K+16)**.5+K/800)
def check(m,k,n,kind='normal',ta=0,tb=0,stack=1,bstack=1,splits=1,group=8):
    A = dist(rnd(stack,m,k),kind); B = dist(rnd(bstack,k,n),kind)
    if kind=='extreme': B = rnd(bstack,k,n)
    if kind=='mixed': B = rnd(bstack,k,n)
    a = A.transpose(1,2).contiguous() if ta else A; b = B.transpose(1,2).contiguous() if tb else B
    out = torch.full((stack,m,n), 7.25e3, device='cuda')
    gemm(a,b,out,stack,m,k,n,ta,tb,bstack,splits,group)
    torch.cuda.synchronize()
    ref = torch.matmul(A.double(), B.double()); base = torch.matmul(A,B)
    e = err(out,ref); f = err(base,ref)
    L = 3*f[0]+limit(k)
    row=''
    if kind in('mixed','extreme'):  # row-wise errors
        rr=ref.square().mean(-1).sqrt().clamp_min(1e-300); 
        row=' rowwise %.2g base %.2g'%((((out.double()-ref).square().mean(-1).sqrt()/rr)[torch.isfinite(rr)]).max().item(), (((base.double()-ref).square().mean(-1).sqrt()/rr)).max().item())
    ok = e[0]<=L
    return ok, f"{m}x{k}x{n} {kind} t{ta}{tb} s{stack}/{bstack} sp{splits} rms {e[0]:.2e} (torch {f[0]:.2e} lim {L:.2e}) max {e[1]:.2e} (torch {f[1]:.2e}){row} {'ok' if ok else 'WRONG'}"
flush = None
def timed(f, reps=12, warm=3):
    global flush
    if flush is None: flush = torch.empty(256<<20, dtype=torch.uint8, device='cuda')
    ts=[]
    for r in range(reps+warm):
        flush.fill_(r&255)
        s,e = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        s.record(); f(); e.record(); e.synchronize()
        if r>=warm: ts.append(s.elapsed_time(e))
    return statistics.median(ts)
def perf(m,k,n,ta=0,tb=0,stack=1,bstack=1,splits=1,groups=(8,),parts=True,eager=True,tag=''):
    A = rnd(stack,k,m) if ta else rnd(stack,m,k); B = rnd(bstack,n,k) if tb else rnd(bstack,k,n)
    out = torch.empty(stack,m,n,device='cuda')
    ws = gemm(A,B,out,stack,m,k,n,ta,tb,bstack,splits,8); torch.cuda.synchronize()
    fl = 2*stack*m*n*k
    line=f"PERF {tag} {stack}x{m}x{k}x{n} t{ta}{tb} sp{splits}"
    if eager:
        X=A.transpose(1,2) if ta else A; Y=B.transpose(1,2) if tb else B
        t=timed(lambda: torch.matmul(X,Y if bstack>1 else Y[0],out=out),6,2); line+=f" eager {t:.4f}"
    for gr in groups:
        t=timed(lambda: gemm(A,B,out,stack,m,k,n,ta,tb,bstack,splits,gr,0,7,ws)); line+=f" all[g{gr}] {t:.4f} ({fl/t/1e9:.0f} TF)"
    if parts:
        ta_=timed(lambda: gemm(A,B,out,stack,m,k,n,ta,tb,bstack,splits,8,0,1,ws)); tb_=timed(lambda: gemm(A,B,out,stack,m,k,n,ta,tb,bstack,splits,8,0,2,ws)); tm=timed(lambda: gemm(A,B,out,stack,m,k,n,ta,tb,bstack,splits,8,0,4,ws))
        line+=f" prepA {ta_:.4f} prepB {tb_:.4f} main {tm:.4f} ({fl/tm/1e9:.0f} TF)"
    say(line)
mode = sys.argv[2]
if mode=='quick':
    bad=0
    for args in [dict(m=128,k=128,n=192),dict(m=64,k=256,n=128),dict(m=127,k=333,n=130),dict(m=33,k=64,n=257),dict(m=1,k=1,n=1),dict(m=300,k=1000,n=500,ta=1),dict(m=300,k=1001,n=501,tb=1),dict(m=301,k=77,n=500,ta=1,tb=1),dict(m=65,k=127,n=33,stack=3,bstack=3),dict(m=700,k=513,n=900,splits=3)]:
        ok,t = check(**args); bad+=not ok
        if not ok or args['m'] in (128,300): say(t)
    say("quick", "ALL OK" if not bad else f"{bad} WRONG")
    ok,t = check(2048,8192,4096); say(t)
    perf(2048,8192,4096,groups=(4,8,16)); perf(4096,4096,4096,eager=False,groups=(8,16),parts=False)
if mode=='dist':
    for kind in ['normal','large','small','positive','offset','integers','heavy','rowconst','sparse','spiked','mixed','wide','extreme']:
        for (m,k,n) in [(256,64,256),(256,128,256),(256,256,384),(512,4096,512)]:
            ok,t=check(m,k,n,kind); say(t)
    # NaN and infinity
    A=rnd(200,300); B=rnd(300,250); A[3,5]=float('inf'); A[150,7]=float('nan'); B[9,100]=float('-inf'); B[0,:]=0; A[20,0]=float('inf')
    out=torch.empty(200,250,device='cuda'); gemm(A,B,out,1,200,300,250); torch.cuda.synchronize(); r=A@B
    say("nonfinite same:", bool((torch.isnan(out)==torch.isnan(r)).all()), bool((torch.isinf(out)==torch.isinf(r)).all()), bool((out[torch.isinf(out)]==r[torch.isinf(out)]).all()), torch.isnan(r).sum().item(), torch.isinf(r).sum().item())
if mode=='shapes':
    perf(4096,4096,4096,groups=(4,8,16),eager=False); perf(2048,8192,4096,1,0); perf(2048,8192,4096,0,1); perf(2048,8192,4096,1,1)
    perf(16384,2048,768); perf(8205,2949,5921); perf(512,1024,2048,stack=128,bstack=128); perf(32768,64,32768); perf(32768,32,32768); perf(8*256*512,256,768)
    perf(256,524288,256,splits=33); perf(256,524288,256,splits=66); perf(2048,4096,11008,0,1); perf(64,4096,14336,0,1)

if mode=='direct':
    bad=0
    for args in [dict(m=128,k=128,n=192),dict(m=64,k=256,n=128),dict(m=127,k=333,n=130),dict(m=33,k=64,n=257),dict(m=1,k=1,n=1),dict(m=300,k=1000,n=500,ta=1),dict(m=300,k=1001,n=501,tb=1),dict(m=301,k=77,n=500,ta=1,tb=1),dict(m=65,k=127,n=33,stack=3,bstack=3),dict(m=700,k=513,n=900,splits=3),dict(m=61,k=4099,n=33,splits=8),dict(m=256,k=524288//8,n=256,splits=33)]:
        ok,t = check(**args); bad+=not ok
        if not ok or args['k']>4000: say(t)
    say("direct", "ALL OK" if not bad else f"{bad} WRONG")
    for sp in (33,66): perf(256,524288,256,splits=sp,parts=False,eager=sp==33)
    for sp in (1,2): perf(256,4096,4096,0,1,splits=sp,parts=False)
    perf(64,4096,28672,0,1,parts=False,eager=False); perf(64,4096,28672,0,1,splits=3,parts=False,eager=False)
    perf(2048,8192,4096,parts=False,eager=False); perf(4096,1024,4096,0,1,parts=False)
if mode=='tri':
    for n in (96,127,200,1000,4096):
        for md,f in ((1,torch.triu),(2,torch.tril)):
            a=f(rnd(n,n)); b=f(rnd(n,n)); out=torch.full((n,n),7e3,device='cuda')
            ws=gemm(a,b,out,1,n,n,n,mode=md); ref=f(a.double()@b.double()); e=err(out,ref); base=err(f(a@b),ref)
            say('tri',n,md,'rms %.2e max %.2e torch %.2e %.2e'%(*e,*base), 'zeros', bool((out==f(out)).all()))
    t=timed(lambda: gemm(a,b,out,1,n,n,n,mode=md,ws=ws)); t2=timed(lambda: gemm(a,b,out,1,n,n,n,mode=md,ws=ws,which=4)); te=timed(lambda: torch.tril(a@b),6,2)
    say('PERF tri 4096 all %.4f main %.4f eager %.4f'%(t,t2,te))

if mode=='shapes2':
    E=dict(eager=False,parts=False)
    perf(2048,8192,4096,**E); perf(4096,4096,4096,groups=(6,8,11,16),**E); perf(16384,2048,768,groups=(8,16,128),**E); perf(8205,2949,5921,**E); perf(512,1024,2048,stack=128,bstack=128,parts=True,eager=False)
    perf(32768,64,32768,groups=(8,64,256),**E); perf(32768,32,32768,groups=(8,64),**E); perf(8*256*512,256,768,groups=(8,64),parts=True,eager=False)
    perf(256,524288,256,splits=33,parts=True,eager=False); perf(4096,1024,4096,0,1,**E); perf(8192,768,3072,0,1,**E); perf(256,4096,4096,0,1,splits=2,**E); perf(256,4096,4096,0,1,splits=4,**E)
    perf(2048,4096,22016,0,1,**E); perf(8192,2048,11264,0,1,**E); perf(512,1024,512,0,1,stack=128,bstack=128,**E); perf(512,512,1024,0,0,stack=128,bstack=128,**E)
if mode=='nan':
    A=rnd(200,300); B=rnd(300,256); A[3,5]=float('inf'); A[150,7]=float('nan'); B[9,100]=float('-inf'); B[0,:]=0; A[20,0]=float('inf'); A[77]*=2.0**100; A[78]*=2.0**-100
    for sp in (1,2):
        out=torch.empty(200,256,device='cuda'); gemm(A,B,out,1,200,300,256,splits=sp); torch.cuda.synchronize(); r=A@B
        fin=torch.isfinite(r)
        say("nonfinite same:", bool((torch.isnan(out)==torch.isnan(r)).all()), bool((torch.isinf(out)==torch.isinf(r)).all()), bool((out[torch.isinf(out)]==r[torch.isinf(out)]).all()), torch.isnan(r).sum().item(), torch.isinf(r).sum().item(), 'row 77 %.2g row 78 %.2g'%tuple(((out[i]-r[i])[fin[i]].norm()/r[i][fin[i]].norm()).item() for i in (77,78)), 'rest %.2g'%((out[80:140,:90]-r[80:140,:90]).norm()/r[80:140,:90].norm()).item())

if mode=='tf32':
    for args in [dict(m=128,k=128,n=192),dict(m=127,k=333,n=130),dict(m=300,k=1000,n=500,ta=1),dict(m=300,k=1001,n=501,tb=1),dict(m=65,k=127,n=33,stack=3,bstack=3),dict(m=700,k=513,n=900,splits=3)]+[dict(m=256,k=k,n=256,kind=kd) for kd in('offset','heavy','positive','spiked','wide','integers') for k in (64,1024)]+[dict(m=2048,k=8192,n=4096)]:
        torch.backends.cuda.matmul.allow_tf32=True
        ok,t=check(**args); say(t.replace('WRONG','(fp32 limit does not apply)'))
    for a in [(2048,8192,4096),(4096,4096,4096),(2048,8192,4096,1,0),(16384,2048,768),(8205,2949,5921),(32768,64,32768),(1048576,256,768)]:
        perf(*a)
    perf(512,1024,2048,stack=128,bstack=128)
if mode=='groups':
    E=dict(eager=False,parts=False)
    perf(32768,64,32768,groups=(8,64,256),**E); perf(32768,32,32768,groups=(8,64,256),**E); perf(8*256*512,256,768,groups=(1,2,4,8),parts=True,eager=False); perf(512,1024,2048,stack=128,bstack=128,groups=(2,4,8),**E); perf(16384,2048,768,groups=(4,8,16),**E); perf(2048,4096,22016,0,1,groups=(4,8,16),**E)
