"""The 35 convolutions: shapes and options. dims: spatial axes in order; options per axis or one number."""
def T(name, x, w, sizes, small, held, transposed=0, stride=1, padding=0, dilation=1, output_padding=0, groups=1, bias=0, kind="dense", columns=0):
    return dict(name=name, ci=x, w=w, sizes=sizes, small=small, held=held, transposed=transposed, stride=stride, padding=padding,
                dilation=dilation, output_padding=output_padding, groups=groups, bias=bias, kind=kind)
# name, channels in, weight shape, (batch, *spatial) full, small, held_out
TASKS = [
 T("conv1d",64,(128,64,3),(32,131072),(2,130),(3,101)),
 T("conv1d_dilated_strided",64,(128,64,3),(64,524280),(2,300),(3,211),stride=3,dilation=4),
 T("conv2d",16,(128,16,3,3),(16,1024,1024),(2,12,14),(3,9,17)),
 T("conv2d_5x9",32,(64,32,5,9),(8,512,512),(2,14,18),(1,13,19)),
 T("conv2d_5x9_dilated",32,(64,32,5,9),(8,512,512),(2,14,26),(1,13,27),padding=(2,4),dilation=(2,3)),
 T("conv2d_depthwise",64,(64,1,3,3),(16,512,512),(2,14,18),(3,11,13),groups=64,kind="depthwise"),
 T("conv2d_depthwise_3x1",8,(8,1,3,1),(64,512,512),(2,34,40),(3,31,29),groups=8,kind="depthwise"),
 T("conv2d_depthwise_3x7",128,(128,1,3,7),(32,128,256),(2,10,22),(3,9,17),groups=128,kind="depthwise"),
 T("conv2d_depthwise_oblong",128,(128,1,3,3),(64,256,512),(2,10,18),(3,11,13),groups=128,kind="depthwise"),
 T("conv2d_depthwise_separable",64,(128,64,1,1),(16,512,512),(2,10,14),(3,7,11),kind="separable"),
 T("conv2d_oblong",64,(128,64,3,3),(8,512,1024),(2,8,14),(3,7,11)),
 T("conv2d_oblong_5x7",64,(128,64,5,7),(8,512,256),(2,14,12),(1,11,15)),
 T("conv2d_pointwise",64,(128,64,1,1),(16,1024,1024),(2,14,18),(3,11,13)),
 T("conv2d_stem",3,(96,3,11,11),(256,224,224),(2,31,35),(3,47,39),stride=4,padding=2,bias=1),
 T("conv3d",3,(64,3,3,3,3),(16,64,64,64),(2,10,10,10),(1,9,11,7)),
 T("conv3d_3x3x1",3,(64,3,3,3,1),(16,256,256,10),(2,12,14,6),(1,11,9,5)),
 T("conv3d_3x5x7",3,(64,3,3,5,7),(16,64,64,64),(2,10,12,14),(1,9,11,13)),
 T("conv3d_oblong_3x5x7",3,(64,3,3,5,7),(8,16,128,128),(2,8,12,14),(1,7,11,13)),
 T("conv_transpose1d",128,(128,128,3),(64,65536),(2,64),(3,51),transposed=1),
 T("conv_transpose1d_dilated",32,(32,64,5),(32,131072),(2,200),(3,101),transposed=1,dilation=3),
 T("conv_transpose1d_strided_dilated",32,(32,64,3),(16,131072),(2,120),(3,101),transposed=1,stride=2,padding=1,dilation=2),
 T("conv_transpose2d",64,(64,64,3,3),(8,1024,1024),(2,12,14),(1,9,17),transposed=1),
 T("conv_transpose2d_3x7",64,(64,64,3,7),(8,512,512),(2,12,12),(1,9,11),transposed=1),
 T("conv_transpose2d_3x7_padded",32,(32,32,3,7),(8,512,1024),(2,12,22),(1,9,17),transposed=1,padding=(1,3)),
 T("conv_transpose2d_grouped",32,(32,16,3,5),(16,128,256),(2,8,12),(1,7,9),transposed=1,stride=(2,3),padding=(1,2),dilation=(2,1),groups=4),
 T("conv_transpose2d_oblong",32,(32,32,3,3),(8,512,1024),(2,12,22),(1,9,17),transposed=1),
 T("conv_transpose2d_oblong_3x5",64,(64,128,3,5),(64,128,256),(2,8,14),(1,7,11),transposed=1),
 T("conv_transpose2d_strided_dilated",32,(32,64,3,3),(16,64,128),(2,6,8),(1,5,7),transposed=1,stride=5,padding=1,dilation=2),
 T("conv_transpose3d",48,(48,48,3,3,3),(8,64,64,64),(2,5,6,6),(1,3,5,7),transposed=1),
 T("conv_transpose3d_3x5x5",32,(32,64,3,5,5),(16,64,64,64),(2,4,6,6),(1,3,5,7),transposed=1),
 T("conv_transpose3d_grouped",32,(32,8,3,5,7),(8,12,24,48),(2,3,5,7),(1,4,3,5),transposed=1,stride=2,padding=(1,2,3),output_padding=1,groups=4),
 T("conv_transpose3d_large",48,(48,24,3,3,3),(8,96,96,96),(2,6,6,6),(1,3,5,7),transposed=1),
 T("conv_transpose3d_oblong_3x5x7",32,(32,16,3,5,7),(16,16,32,64),(2,4,6,8),(1,3,5,7),transposed=1),
 T("conv_transpose3d_strided",32,(32,32,3,3,3),(4,32,64,128),(2,4,5,7),(1,3,4,5),transposed=1,stride=2,padding=1),
 T("conv_transpose3d_strided_dilated",32,(32,64,3,3,3),(16,16,32,32),(2,3,5,5),(1,4,3,4),transposed=1,stride=2,padding=1,dilation=2),
]
def per(v, n): return tuple(v) if isinstance(v, tuple) else (v,) * n
def form(t, sizes):
    n = len(sizes) - 1
    k, s, p, d, op = t["w"][2:], per(t["stride"], n), per(t["padding"], n), per(t["dilation"], n), per(t["output_padding"], n)
    i = sizes[1:]
    if t["transposed"]: o = tuple((i[a]-1)*s[a] - 2*p[a] + d[a]*(k[a]-1) + op[a] + 1 for a in range(n))
    else: o = tuple((i[a] + 2*p[a] - d[a]*(k[a]-1) - 1)//s[a] + 1 for a in range(n))
    g = t["groups"]
    co = t["w"][1] if t["transposed"] else t["w"][0]//g
    pad3 = lambda v, fill: (fill,)*(3-n) + tuple(v)
    ints = [sizes[0], g, t["ci"]//g, co, *pad3(i,1), *pad3(o,1), *pad3(k,1), *pad3(s,1), *pad3(p,0), *pad3(d,1), t["transposed"]]
    return ints, (sizes[0], co*g, *o)
def columns_of(t):
    """As make_plan chooses: couts per tile times active phases."""
    co = t["w"][1] if t["transposed"] else t["w"][0]//t["groups"]
    n = len(t["w"])-2; s=per(t["stride"],n)[-1]; p=per(t["padding"],n)[-1]; d=per(t["dilation"],n)[-1]; k=t["w"][-1]
    active=1; ostep=1
    if t["transposed"]:
        ostep=s
        active=len({(kk*d-p)%s for kk in range(k)})
    c=min(co,64//active); tiles=-(-co//c); c=-(-co//tiles)
    for w in (8,16,24,32,48,64):
        if w>=c*active: return w, ostep
def ref(t, x, w, b):
    import torch.nn.functional as F
    n = x.dim()-2
    if t["kind"]=="separable": raise ValueError
    if t["transposed"]:
        return getattr(F, f"conv_transpose{n}d")(x, w, b, t["stride"], t["padding"], t["output_padding"], t["groups"], t["dilation"])
    return getattr(F, f"conv{n}d")(x, w, b, t["stride"], t["padding"], t["dilation"], t["groups"])
