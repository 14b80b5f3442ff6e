"""Checks and times an adapter: python adp.py folder task"""
import ctypes, sys, statistics, torch
import torch.nn.functional as F
torch.backends.cuda.matmul.allow_tf32 = False; torch.backends.cudnn.allow_tf32 = False
V,I,D=ctypes.c_void_p,ctypes.c_int64,ctypes.c_double
folder,task=sys.argv[1:3]
L=ctypes.CDLL(f'{folder}/'+('all2.so' if task in('swiglu','layer_norm_linear') else 'all1.so')); L.launch=getattr(L,'launch_'+task); L.workspace_bytes=getattr(L,'ws_'+task)
def lim(K): return 2**-24*(1+1.5*(K+16)**.5+K/800)
flush=torch.empty(256<<20,dtype=torch.uint8,device='cuda')
def timed(f,reps=12,warm=3):
    ts=[]
    for r in range(reps+warm):
        flush.fill_(r&255); s,e=torch.cuda.Event(enable_timing=True),torch.cuda.Event(enable_timing=True)
        s.record(); f(); e.record(); e.synchronize()
        if r>=warm: ts.append(s.elapsed_time(e))
    return statistics.median(ts)
n=torch.randn
def dev(*s): return n(*s,device='cuda')
mm=lambda a,b:a@b
T={
 'matmul':(['m','k','n'],[(64,256,128),(127,333,130),(33,64,257),(2048,8192,4096)],lambda m,k,n:[dev(m,k),dev(k,n)],mm,lambda m,k,n:k,[]),
 'matmul_transposed_a':(['k','m','n'],[(256,64,128),(333,127,130),(8192,2048,4096)],lambda k,m,n:[dev(k,m),dev(k,n)],lambda a,b:a.T@b,lambda k,m,n:k,[]),
 'matmul_transposed_b':(['m','k','n'],[(64,256,128),(127,333,130),(2048,8192,4096)],lambda m,k,n:[dev(m,k),dev(n,k)],lambda a,b:a@b.T,lambda m,k,n:k,[]),
 'matmul_transposed_both':(['k','m','n'],[(256,64,128),(333,127,130),(8192,2048,4096)],lambda k,m,n:[dev(k,m),dev(n,k)],lambda a,b:a.T@b.T,lambda k,m,n:k,[]),
 'matmul_square':(['n'],[(96,),(127,),(200,),(4096,)],lambda n:[dev(n,n),dev(n,n)],mm,lambda n:n,[]),
 'matmul_symmetric':(['n'],[(96,),(127,),(200,),(4096,)],lambda n:[(lambda h:(h+h.T)/2)(dev(n,n)) for _ in (0,1)],mm,lambda n:n,[]),
 'matmul_upper_triangular':(['n'],[(96,),(127,),(200,),(4096,)],lambda n:[torch.triu(dev(n,n)) for _ in (0,1)],lambda a,b:torch.triu(a@b),lambda n:n,[]),
 'matmul_lower_triangular':(['n'],[(96,),(127,),(200,),(4096,)],lambda n:[torch.tril(dev(n,n)) for _ in (0,1)],lambda a,b:torch.tril(a@b),lambda n:n,[]),
 'matmul_irregular':(['m','k','n'],[(77,115,93),(61,131,67),(128,64,96),(8205,2949,5921)],lambda m,k,n:[dev(m,k),dev(k,n)],mm,lambda m,k,n:k,[]),
 'matmul_large_k':(['m','k','n'],[(32,4096,32),(61,4099,33),(256,524288,256)],lambda m,k,n:[dev(m,k),dev(k,n)],mm,lambda m,k,n:k,[]),
 'matmul_small_k':(['m','k','n'],[(256,16,256),(127,64,255),(200,33,100),(32768,64,32768)],lambda m,k,n:[dev(m,k),dev(k,n)],mm,lambda m,k,n:k,[]),
 'matmul_tall_skinny':(['m','k','n'],[(256,16,256),(127,32,255),(200,17,100),(32768,32,32768)],lambda m,k,n:[dev(m,k),dev(k,n)],mm,lambda m,k,n:k,[]),
 'matmul_3d':(['b','m','k','n'],[(4,32,64,48),(3,33,127,65),(16,1024,2048,768)],lambda b,m,k,n:[dev(b,m,k),dev(k,n)],mm,lambda b,m,k,n:k,[]),
 'matmul_4d':(['b','h','w','k','n'],[(2,8,16,32,48),(3,5,17,33,65),(8,256,512,256,768)],lambda b,h,w,k,n:[dev(b,h,w,k),dev(k,n)],lambda a,b:torch.einsum('bijl,lk->bijk',a,b),lambda b,h,w,k,n:k,[]),
 'matmul_batched':(['b','m','k','n'],[(4,32,64,96),(3,65,127,33),(128,512,1024,2048)],lambda b,m,k,n:[dev(b,m,k),dev(b,k,n)],mm,lambda b,m,k,n:k,[]),
 'swiglu':(['rows','cols','width'],[(48,128,96),(33,127,65),(2048,4096,11008),(8192,2048,5632),(64,4096,14336)],lambda r,c,w:[dev(r,c),dev(w,c)*.03,dev(w,c)*.03],lambda x,g,u:F.silu(x@g.T)*(x@u.T),lambda r,c,w:c,[]),
 'layer_norm_linear':(['rows','cols','width'],[(48,128,96),(33,127,65),(4096,1024,4096),(8192,768,3072),(256,4096,4096)],lambda r,c,w:[dev(r,c),1+dev(c)*.1,dev(c)*.1,dev(w,c)*.03,dev(w)*.1],lambda x,g,s,w,b:F.gelu(F.linear(F.layer_norm(x,g.shape,g,s,1e-5),w,b)),lambda r,c,w:c,[1e-5]),
 'attention':(['batch','heads','length','width'],[(2,2,48,32),(1,3,33,64),(2,1,65,24),(1,1,1,1),(2,4,512,1024),(32,32,512,1024)],lambda b,h,l,w:[dev(b,h,l,w) for _ in range(3)],F.scaled_dot_product_attention,lambda b,h,l,w:max(l,w),[]),
}
axes,sizes,make,ref,K,scal=T[task]
L.workspace_bytes.restype=I; L.workspace_bytes.argtypes=[D]*len(scal)+[I]*len(axes)
for size in sizes:
    try:
        ins=make(*size)
        big=sum(t.numel() for t in ins)>5e8
        base=ref(*ins)
        L.launch.argtypes=[V]*(len(ins)+1)+[D]*len(scal)+[I]*len(axes)+[V,V]
        ws=torch.full((L.workspace_bytes(*scal,*size)+256,),255,dtype=torch.uint8,device='cuda')
        out=torch.full(base.shape,7.7e4,device="cuda")
        f=lambda: L.launch(*[t.data_ptr() for t in ins],out.data_ptr(),*scal,*size,ws.data_ptr(),torch.cuda.current_stream().cuda_stream)
        r=f(); torch.cuda.synchronize()
        if r: print(task,size,'code',r,flush=True); continue
        if task=='matmul_4d' and big or task=='matmul_4d' and size[0]==8: 
            sl=[ins[0][:1].double(),ins[1].double()]; R=ref(*sl); o,b_=out[:1],base[:1]
        elif task=='attention' and size[0]==32:
            R=ref(*[t[:1].double() for t in ins]); o,b_=out[:1],base[:1]
        elif out.numel()>5e8:
            R=ref(ins[0][:2048].double(),ins[1].double()); o,b_=out[:2048],base[:2048]
        else: R=ref(*[t.double() for t in ins]); o,b_=out,base
        s=R.square().mean().sqrt(); er=((o-R).square().mean().sqrt()/s).item(); eb=((b_-R).square().mean().sqrt()/s).item(); mx=((o-R).abs()/(R.abs()+s)).max().item()
        whole=((out-base).abs().max()/s).item()
        l=3*eb+lim(K(*size))
        line=f"{task} {size} rms {er:.2e} torch {eb:.2e} lim {l:.2e} max {mx:.2e} vs torch everywhere {whole:.1e} {'ok' if er<=l and whole<1e-3 else 'WRONG'} ws {ws.numel()>>20} MB"
        del R,o,b_
        if size in sizes[2:] and (max(size)>=1000 or size==sizes[-1]):
            t=timed(f); te=timed(lambda: ref(*ins),5,2); line+=f" TIME {t:.4f} eager {te:.4f} x{te/t:.2f}"
        print(line,flush=True)
        del base,out,ws,ins
    except Exception as e: print(task,size,'FAILED',repr(e)[:300],flush=True)
