"""driver.py TASK VARIANT [time|check]: checks one built kernel against fp64 and times it. Prints one JSON line per item."""
import sys, json, ctypes, os, math, time
import torch
torch.backends.cuda.matmul.allow_tf32=False; torch.backends.cudnn.allow_tf32=False
F=torch.nn.functional
here=os.path.dirname(os.path.abspath(__file__))
d='cuda'
def N(*s,mean=0.,std=1.): return torch.randn(*s,device=d)*std+mean
def U(*s,lo=0.,hi=1.): return torch.rand(*s,device=d)*(hi-lo)+lo
class T: pass
TASKS={}
def task(name,sizes,small,inputs,ref,outs,axes,scal=(),vary=('x',),bytes_=None):
    TASKS[name]=dict(sizes=sizes,small=small,inputs=inputs,ref=ref,outs=outs,axes=axes,scal=scal,vary=vary)
def pool1(f,k,kw,dil,ch):
    def axes(s): return [*s, s[2]+8-dil*7]
    return dict(sizes=[(64,ch,65536)],small=[(2,16,500),(3,7,1001),(1,1,30),(2,3,4096),(1,5,2051)],inputs=lambda s:[N(*s)],ref=f,outs=None,axes=axes,scal=(),vary=(0,))
TASKS['avg_pool1d']=pool1(lambda x:F.avg_pool1d(x,8,1,4),8,4,1,128)
TASKS['max_pool1d']=pool1(lambda x:F.max_pool1d(x,8,1,4,3),8,4,3,192)
P2=[(2,8,32,40),(3,5,29,61),(1,2,130,260),(4,8,88,99),(3,5,61,127),(2,3,67,512),(1,1,12,12)]
TASKS['max_pool2d']=dict(sizes=[(32,64,512,512)],small=P2,inputs=lambda s:[N(*s)],ref=lambda x:F.max_pool2d(x,4,1,1),axes=lambda s:[*s,s[2]-1,s[3]-1],vary=(0,))
TASKS['avg_pool2d']=dict(sizes=[(16,64,2048,2048)],small=P2,inputs=lambda s:[N(*s)],ref=lambda x:F.avg_pool2d(x,11),axes=lambda s:[*s,s[2]//11,s[3]//11],vary=(0,))
P3=[(2,4,32,32,36),(3,5,13,17,23),(1,2,20,30,260),(1,3,9,8,128)]
TASKS['avg_pool3d']=dict(sizes=[(16,32,128,128,256)],small=P3,inputs=lambda s:[N(*s)],ref=lambda x:F.avg_pool3d(x,3,2,1),axes=lambda s:[*s]+[(v-1)//2+1 for v in s[2:]],vary=(0,))
TASKS['max_pool3d']=dict(sizes=[(16,32,128,128,128)],small=P3,inputs=lambda s:[N(*s)],ref=lambda x:F.max_pool3d(x,3,2,1,3),axes=lambda s:[*s]+[(v+2-6-1)//2+1 for v in s[2:]],vary=(0,))
R2=[(50,999),(61,4099),(130,256),(3,1),(5,4),(7,8193),(4,32768)]
for n,f in dict(cumsum=lambda x:x.cumsum(1),cumsum_exclusive=lambda x:F.pad(x,(1,0)).cumsum(1)[:,:-1],cumsum_reverse=lambda x:x.flip(1).cumsum(1).flip(1)).items():
    TASKS[n]=dict(sizes=[(32768,32768)],small=R2,inputs=lambda s:[N(*s)],ref=f,axes=lambda s:[*s],vary=(0,))
TASKS['cumprod']=dict(sizes=[(32768,32768)],small=R2,inputs=lambda s:[U(*s,lo=.998,hi=1.002)],ref=lambda x:x.cumprod(1),axes=lambda s:[*s],vary=())
TASKS['cumsum_masked']=dict(sizes=[(32768,32768)],small=R2,inputs=lambda s:[N(*s),torch.rand(*s,device=d)>.5],ref=lambda x,m:(x*m).cumsum(1),axes=lambda s:[*s],vary=(0,))
TASKS['rotary_embedding']=dict(sizes=[(4,32,2048,128,64),(16,16,1024,64,32),(1,32,8192,128,64)],small=[(2,3,40,32,16),(1,5,33,48,24),(1,2,7,10,5)],inputs=lambda s:[N(*s[:4]),N(*s[:4]),U(s[2],s[4],lo=-3,hi=3)],ref=None,axes=lambda s:[*s],vary=(0,1))
def rot(q,k,a):
    c=torch.cat((a.cos(),a.cos()),-1); s=torch.cat((a.sin(),a.sin()),-1); o=[]
    for x in (q,k):
        f,g=x.chunk(2,-1); o.append(x*c+torch.cat((-g,f),-1)*s)
    return tuple(o)
TASKS['rotary_embedding']['ref']=rot
TASKS['embedding_position']=dict(sizes=[(32,1024,50257,768),(4,2048,32000,4096),(256,128,30522,1024)],small=[(3,40,200,48),(2,33,101,65),(5,7,11,64)],inputs=lambda s:[torch.randint(0,s[2],(s[0],s[1]),device=d),N(s[2],s[3]),N(s[1],s[3])],ref=lambda t,w,p:F.embedding(t,w)+p,axes=lambda s:[*s],vary=(1,2))
def topk(x):
    b,i=torch.topk(x,8,-1); return torch.softmax(b,-1),i
TASKS['top_k_softmax']=dict(sizes=[(32768,64),(8192,256),(4096,128)],small=[(100,32),(61,47),(33,300),(5,8),(40,200)],inputs=lambda s:[N(*s)],ref=topk,axes=lambda s:[*s],vary=(0,),picks=True)
def quant(x):
    _,e=torch.frexp(x.abs().amax(-1,keepdim=True)); sc=torch.ldexp(torch.ones_like(x[:,:1]),e-7)
    c=torch.clamp(torch.round(x/sc),-127,127); return c.to(torch.int8),c*sc
ROWS=[(50,300),(61,1001),(3,1),(5,4099),(4,16384),(3,32771),(2,70001),(2,131075),(1,300001)]
TASKS['quantize_dequantize']=dict(sizes=[(4096,4096),(16384,1024),(256,32768)],small=ROWS,inputs=lambda s:[N(*s)],ref=quant,axes=lambda s:[*s],vary=(0,))
def ce(l,y):
    g=torch.log_softmax(l,-1); loss=-g.gather(1,y[:,None]).squeeze(1)
    return loss,(g.exp()-F.one_hot(y,l.shape[1])).to(l.dtype)
TASKS['softmax_cross_entropy']=dict(sizes=[(4096,32000),(1024,128256),(16384,1000)],small=[(48,300),(33,1001)]+ROWS[2:],inputs=lambda s:[N(*s),torch.randint(0,s[1],(s[0],),device=d)],ref=ce,axes=lambda s:[*s],vary=(0,))
GN=[(3,64,16,20),(2,64,13,17),(1,64,64,67)]
def gn(groups,act=None):
    def ref(x,w,b):
        y=F.group_norm(x,groups,w,b,1e-5); return act(y) if act else y
    return ref
TASKS['group_norm_silu']=dict(sizes=[(8,320,64,64),(8,1280,16,16),(2,128,256,256)],small=[(2,64,10,12),(3,96,9,7),(1,64,64,67)],inputs=lambda s:[N(*s,mean=.5),N(s[1],mean=1,std=.1),N(s[1],std=.1)],ref=gn(32,F.silu),axes=lambda s:[*s],scal=(('i',32),('d',1e-5)),vary=(0,))
TASKS['group_norm']=dict(sizes=[(112,64,512,512)],small=GN,inputs=lambda s:[N(*s,mean=.5),N(s[1],mean=1,std=.1),N(s[1],std=.1)],ref=gn(8),axes=lambda s:[*s],scal=(('i',8),('d',1e-5)),vary=(0,))
TASKS['batch_norm']=dict(sizes=[(64,64,512,512)],small=GN+[(5,64,128,130)],inputs=lambda s:[N(*s,mean=.5),N(s[1],mean=1,std=.1),N(s[1],std=.1)],ref=lambda x,w,b:F.batch_norm(x,None,None,w,b,True,0.,1e-5),axes=lambda s:[*s],scal=(('d',1e-5),),vary=(0,))
TASKS['instance_norm']=dict(sizes=[(112,64,512,512)],small=GN+[(1,3,512,512),(1,3,511,513)],inputs=lambda s:[N(*s,mean=.5)],ref=lambda x:F.instance_norm(x,eps=1e-5),axes=lambda s:[*s],scal=(('d',1e-5),),vary=(0,))
TASKS['layer_norm']=dict(sizes=[(16,64,256,256)],small=[(4,8,16,20),(3,64,256,256),(5,7,11,13)],inputs=lambda s:[N(*s,mean=.5),N(*s[1:],mean=1,std=.1),N(*s[1:],std=.1)],ref=lambda x,w,b:F.layer_norm(x,w.shape,w,b,1e-5),axes=lambda s:[*s],scal=(('d',1e-5),),vary=(0,))
TASKS['rms_norm']=dict(sizes=[(112,64,512,512)],small=GN,inputs=lambda s:[N(*s,mean=.5)],ref=lambda x:x/torch.sqrt(torch.mean(x**2,dim=1,keepdim=True)+1e-5),axes=lambda s:[*s],scal=(('d',1e-5),),vary=(0,))
TASKS['frobenius_norm']=dict(sizes=[(112,64,512,512)],small=GN,inputs=lambda s:[N(*s,mean=.5)],ref=lambda x:x/torch.linalg.vector_norm(x),axes=lambda s:[*s],vary=(0,))
NR=[(64,999),(61,4099),(130,256),(5,65535),(3,1)]
TASKS['l1_norm']=dict(sizes=[(32768,65535)],small=NR,inputs=lambda s:[N(*s)],ref=lambda x:x/x.abs().mean(1,keepdim=True),axes=lambda s:[*s],vary=(0,))
TASKS['l2_norm']=dict(sizes=[(32768,65535)],small=NR,inputs=lambda s:[N(*s)],ref=lambda x:x/torch.linalg.vector_norm(x,dim=1,keepdim=True),axes=lambda s:[*s],vary=(0,))
TASKS['softmax']=dict(sizes=[(4096,393216)],small=NR+[(3,262144),(2,393216),(2,393217)],inputs=lambda s:[N(*s)],ref=lambda x:torch.softmax(x,1),axes=lambda s:[*s],vary=(0,))
TASKS['log_softmax']=dict(sizes=[(4096,393216)],small=NR+[(3,262144),(2,393216),(2,393217)],inputs=lambda s:[N(*s)],ref=lambda x:torch.log_softmax(x,1),axes=lambda s:[*s],vary=(0,))
def adam(w,g,m,v):
    a=.9*m+(1-.9)*g; b=.999*v+(1-.999)*g**2
    return w-.1*a/(b.sqrt()+1e-8),a,b
TASKS['adam_step']=dict(sizes=[(16777216,),(134217728,),(65536,)],small=[(10000,),(4099,),(3,)],inputs=lambda s:[N(*s),N(*s),N(*s,std=.1),U(*s,lo=.01,hi=1)],ref=adam,axes=lambda s:[*s],scal=(('d',.1),('d',.9),('d',.999),('d',1e-8)),vary=(0,1))
TASKS['bias_gelu']=dict(sizes=[(8192,4096),(2048,16384),(64,11008)],small=[(50,300),(61,1001),(3,7)],inputs=lambda s:[N(*s),N(s[1],std=.1)],ref=lambda x,b:F.gelu(x+b),axes=lambda s:[*s],vary=(0,))
def rrn(x,r,w):
    t=x+r; return t*torch.rsqrt(t.pow(2).mean(-1,keepdim=True)+1e-5)*w,t
TASKS['residual_rms_norm']=dict(sizes=[(4096,4096),(16384,2048),(128,8192)],small=ROWS[:6],inputs=lambda s:[N(*s),N(*s),N(s[1],mean=1,std=.1)],ref=rrn,axes=lambda s:[*s],scal=(('d',1e-5),),vary=(0,1))
ACT=dict(softplus=F.softplus,elu=F.elu,selu=F.selu,gelu=F.gelu,sigmoid=torch.sigmoid,tanh=torch.tanh,gelu_tanh=lambda x:0.5*x*(1+torch.tanh(math.sqrt(2/math.pi)*(x+0.044715*x**3))))
for n,f in ACT.items(): TASKS[n]=dict(sizes=[(8192,8192) if n=='gelu_tanh' else (4096,393216)],small=[(50,300),(61,1001),(3,7)],inputs=lambda s:[N(*s)],ref=f,axes=lambda s:[*s],vary=(0,))

def tup(o): return o if isinstance(o,tuple) else (o,)
def call(lib,name,ins,outs,axes,scal,ws):
    args=[ctypes.c_void_p(t.data_ptr()) for t in (*ins,*outs)]
    args+=[ctypes.c_int64(v) if k=='i' else ctypes.c_double(v) for k,v in scal]
    args+=[ctypes.c_int64(a) for a in axes]
    args+=[ctypes.c_void_p(ws.data_ptr() if ws is not None else 0), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)]
    return lib.launch(*args)
def wsfor(lib,t,axes):
    try: f=lib.workspace_bytes
    except AttributeError: return None
    f.restype=ctypes.c_int64
    n=f(*[ctypes.c_int64(v) if k=='i' else ctypes.c_double(v) for k,v in t.get('scal',())],*[ctypes.c_int64(a) for a in axes])
    return torch.full((max(n,1),),0xAB,dtype=torch.uint8,device=d)
def fresh(refs):
    o=[]
    for r in refs:
        e=torch.empty(r.shape,dtype=r.dtype,device=d)
        if e.is_floating_point(): e.fill_(float('nan'))
        else: e.fill_(77)
        o.append(e)
    return o
def variants(t,ins):
    yield 'plain',ins
    vs={'large':lambda x:x*1e4,'small':lambda x:x*1e-4,'ints':lambda x:(x*3).round(),'const':lambda x:torch.full_like(x,3.0),'mixed':lambda x:x*torch.exp(3*torch.randn_like(x)),'shift':lambda x:x+1000,'zeros':lambda x:x*(torch.rand_like(x)>.9)}
    for n,f in vs.items():
        if t['vary']: yield n,[f(x) if i in t['vary'] else x for i,x in enumerate(ins)]
def errs(c,r):
    c=c.double(); r=r.double(); s=r.pow(2).mean().sqrt().item() or 1.0
    if not torch.isfinite(r).all(): 
        bad=(torch.isfinite(c)!=torch.isfinite(r)).sum().item(); m=torch.isfinite(r)&torch.isfinite(c); c=c[m]; r=r[m]
        if bad: return float('inf'),float('inf')
        if r.numel()==0: return 0.,0.
    if not torch.isfinite(c).all(): return float('inf'),float('inf')
    e=(c-r).abs(); return (e/(r.abs()+s)).max().item(), e.pow(2).mean().sqrt().item()/s
def check(name,lib,t):
    worst=(0,'');worstabs=0;bad=[]
    for s in t['small']:
        if name=='cumprod' and 0: continue
        ax=t['axes'](s)
        base=t['inputs'](s)
        for vn,ins in variants(t,base):
            if s[0]*s[-1]>250000 and vn not in('plain','shift','mixed'): continue
            try: r32=tup(t['ref'](*ins)); r64=tup(t['ref'](*[i.double() if i.is_floating_point() else i for i in ins]))
            except Exception as e: continue
            outs=fresh(r32); ws=wsfor(lib,t,ax)
            keep=[i.clone() for i in ins]
            rc=call(lib,name,ins,outs,ax,t.get('scal',()),ws); torch.cuda.synchronize()
            if rc: bad.append(f'{s}{vn}:rc{rc}'); continue
            if any(not torch.equal(a,b) for a,b in zip(keep,ins)): bad.append(f'{s}{vn}:input changed')
            for k,(o,a,b) in enumerate(zip(outs,r32,r64)):
                if not o.is_floating_point():
                    if t.get('picks') :
                        okk=torch.equal(ins[0].gather(1,o.clamp(0,s[1]-1)),ins[0].gather(1,a)) and o.min()>=0 and o.max()<s[1] and all(len(set(q.tolist()))==8 for q in o[:20])
                    else: okk=torch.equal(o,a)
                    if not okk: bad.append(f'{s}{vn}:out{k} int differs {(o!=a).sum().item()}')
                    continue
                if not all(torch.isfinite(b).flatten().all().item() for b in [a]): continue
                em,er=errs(o,b); tm,tr=errs(a,b)
                lim=3*tm+3e-7; limr=3*tr+1.2e-7
                q=max(em/lim,er/limr)
                if not q<=1: bad.append(f'{s}{vn}:out{k} max {em:.2e}/{tm:.2e} rms {er:.2e}/{tr:.2e}')
                if q>worst[0]: worst=(q,f'{s}{vn} max {em:.2e}/{tm:.2e} rms {er:.2e}/{tr:.2e}')
    return dict(worst=worst,bad=bad[:6],nbad=len(bad))
flush=None
def timeit(f,reps):
    global flush
    if flush is None: flush=torch.empty(64*1024*1024,device=d)
    g=None
    f(); torch.cuda.synchronize()
    try:
        st=torch.cuda.Stream()
        with torch.cuda.stream(st):
            f(); torch.cuda.synchronize()
            g=torch.cuda.CUDAGraph()
            with torch.cuda.graph(g,stream=st): f()
        run=g.replay
    except Exception as e:
        sys.stderr.write('nograph '+str(e)[:200]+'\n'); run=f
    run(); torch.cuda.synchronize(); ts=[]
    for _ in range(reps):
        flush.fill_(1.0)
        a=torch.cuda.Event(enable_timing=True); b=torch.cuda.Event(enable_timing=True)
        a.record(); run(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b))
    ts.sort(); return ts[len(ts)//2]
def timing(name,lib,t,eager):
    for s in t['sizes']:
        ins=t['inputs'](s); ax=t['axes'](s)
        ref=tup(t['ref'](*ins)); outs=fresh(ref)
        ws=wsfor(lib,t,ax)
        def f():
            rc=call(lib,name,ins,outs,ax,t.get('scal',()),ws)
            if rc: raise RuntimeError(f'rc {rc}')
        f(); torch.cuda.synchronize()
        dmax=[]
        for o,r in zip(outs,ref):
            if o.is_floating_point():
                o=o.flatten(); r=r.flatten(); step=max(1,o.numel()//(1<<28))
                worst=0.0
                for i in range(0,o.numel(),1<<28): 
                    df=(o[i:i+(1<<28)]-r[i:i+(1<<28)]).abs().max().item(); worst=max(worst,df) if df==df else float('nan')
                dmax.append(worst/ (r[:1<<20].pow(2).mean().sqrt().item() or 1))
            elif not t.get('picks'): dmax.append(int((o!=r).sum()))
        nb=sum(i.numel()*i.element_size() for i in (*ins,*ref))
        del ref; torch.cuda.empty_cache()
        small=nb<6e8
        sets=1
        if small: sets=max(2,min(24,int(2.4e9//nb)))
        many=[(ins,outs,ws)]
        for _ in range(sets-1): many.append((t['inputs'](s),[torch.empty_like(o) for o in outs],wsfor(lib,t,ax)))
        def g():
            for i,o,w in many:
                rc=call(lib,name,i,o,ax,t.get('scal',()),w)
                if rc: raise RuntimeError(f'rc {rc}')
        k=timeit(g,15 if small else 10)/sets
        res=dict(task=name,size=s,kernel_ms=round(k,5),gbs=round(nb/k/1e6),diff=dmax)
        if eager:
            def h():
                for i,o,w in many: t['ref'](*i)
            e=timeit(h,7 if small else 5)/sets; res['eager_ms']=round(e,5); res['speedup']=round(e/k,3)
        del many
        print(json.dumps(res),flush=True)
        del ins,outs; torch.cuda.empty_cache()
if __name__=='__main__':
    name,var=sys.argv[1],sys.argv[2]; mode=sys.argv[3] if len(sys.argv)>3 else 'ct'
    torch.manual_seed(1)
    lib=ctypes.CDLL(f'{here}/so/{name}@{var}.so'); lib.launch.restype=ctypes.c_int
    t=TASKS[name]
    if 'c' in mode: print(json.dumps(dict(task=name,var=var,check=check(name,lib,t))),flush=True)
    if 't' in mode: timing(name,lib,t,'e' in mode)
