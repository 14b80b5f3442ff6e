"""serve.py OUT LIST...: each item TASK@VARIANT:MODE; checks side by side first, then times one after another, each in a forked child."""
import sys, os, time, signal, json, io
import driver
out=sys.argv[1]; limit=float(sys.argv[2]); items=[l.strip() for l in open(sys.argv[3]) if l.strip() and l[0]!='#']
os.makedirs(out,exist_ok=True); start=time.time(); summary=open(out+'/summary.txt','a')
def say(s): summary.write(s+'\n'); summary.flush(); print(s,flush=True)
def child(item,mode,path):
    pid=os.fork()
    if pid: return pid
    f=os.open(path,os.O_WRONLY|os.O_CREAT|os.O_APPEND); os.dup2(f,1); os.dup2(f,2)
    rc=1
    try:
        import ctypes,torch
        name,var=item.split('@'); torch.manual_seed(1)
        lib=ctypes.CDLL(f'{driver.here}/so/{name}@{var}.so'); lib.launch.restype=ctypes.c_int
        t=driver.TASKS[name]
        if mode=='c': print(json.dumps(dict(task=name,var=var,check=driver.check(name,lib,t))),flush=True)
        else: driver.timing(name,lib,t,'e' in mode)
        rc=0
    except BaseException as e: print('EXC',type(e).__name__,str(e)[:300],flush=True)
    os._exit(rc)
def wait(pids,seconds):
    end=time.time()+seconds; left=dict(pids)
    while left and time.time()<end:
        for p in list(left):
            r,st=os.waitpid(p,os.WNOHANG)
            if r: left.pop(p)
        time.sleep(.02)
    for p,i in left.items(): os.kill(p,signal.SIGKILL); os.waitpid(p,0); (say(f'KILLED {i}'),failed.add(i))
failed=set()
checks=[i for i in items if 'c' in i.split(':')[1]]; times=[i for i in items if 't' in i.split(':')[1]]
PAR=6
for k in range(0,len(checks),PAR):
    group=checks[k:k+PAR]; pids={}
    for i in group:
        n=i.split(':')[0]; pids[child(n,'c',f'{out}/{n}.check')]=n
    wait(pids,20)
    for i in group:
        n=i.split(':')[0]
        try: say(f'CHECK {n} '+open(f'{out}/{n}.check').read().strip()[-700:])
        except OSError: say(f'CHECK {n} nothing')
say(f'checks took {time.time()-start:.1f}s')
for i in times:
    n,m=i.split(':')
    if time.time()-start>limit: say(f'SKIPPED {n}'); continue
    if n in failed: say(f'NOT TIMED {n}'); continue
    p=child(n,m.replace('c',''),f'{out}/{n}.time'); wait({p:n},15)
    try: say(f'TIME {n} '+open(f'{out}/{n}.time').read().strip()[-700:])
    except OSError: say(f'TIME {n} nothing')
say(f'all took {time.time()-start:.1f}s')
