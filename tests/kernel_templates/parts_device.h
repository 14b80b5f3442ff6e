// What tasks in parts call, on the emulated device (emulator.h comes before): the headers of rows and of single elements
// as they are, and plain stand-ins for products, which need tensor cores. Products and the longest rows have tests of
// their own.
struct alignas(16) float4 { float x, y, z, w; };
inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
template <typename T> T __ldcs(const T* from) { return *from; }
template <typename T> void __stcg(T* to, T value) { *to = value; }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
struct cudaLaunchAttribute { int id; struct { dim3 clusterDim; } val; };
enum { cudaLaunchAttributeClusterDimension = 1, cudaFuncAttributeNonPortableClusterSizeAllowed };
struct cudaLaunchConfig_t { dim3 gridDim, blockDim; cudaStream_t stream; cudaLaunchAttribute* attrs; int numAttrs; };
template <typename K, typename... A>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t* config, K kernel, A... given) {
  const int blocks = config->numAttrs ? config->attrs[0].val.clusterDim.x : 1;
  const auto body = [=] { kernel(given...); };
  if (blocks == 1) emulated::launch(config->gridDim, config->blockDim.x, 0, body);
  else emulated::launch_clusters(blocks, config->gridDim, config->blockDim.x, 0, body);
  return cudaSuccess;
}
#define INFINITE (1 << 20)

namespace warpsmith {
struct Product { int64_t stack, rows, terms, columns; bool shared_b; };
struct Factor { const float* data; int64_t row_step, term_step, stack_step; };
inline Factor plain(const float* data, int64_t rows, int64_t terms) { return {data, terms, 1, rows * terms}; }
inline Factor transposed(const float* data, int64_t rows, int64_t terms) { return {data, 1, rows, rows * terms}; }
inline bool by_registers(const Product&, int) { return true; }
// Part of the workspace is overwritten, so that a value that lies there is missed.
inline int64_t register_bytes(const Product&) { return 4096; }
inline int64_t multiply_bytes(const Product&) { return 4096; }
template <bool, bool>
int multiply_in_registers(const Product& p, Factor a, Factor b, float* out, const float* bias, void* workspace, void*) {
  std::memset(workspace, 0x7f, 4096);
  for (int64_t s = 0; s < p.stack; ++s)
    for (int64_t r = 0; r < p.rows; ++r)
      for (int64_t c = 0; c < p.columns; ++c) {
        double sum = bias ? bias[c] : 0.0;
        const float* first = a.data + s * a.stack_step + r * a.row_step;
        const float* second = b.data + (p.shared_b ? 0 : s * b.stack_step) + c * b.row_step;
        for (int64_t k = 0; k < p.terms; ++k) sum += double(first[k * a.term_step]) * second[k * b.term_step];
        out[(s * p.rows + r) * p.columns + c] = float(sum);
      }
  return 0;
}
namespace split {
struct Store {
  int columns;
  bool by_rows() const { return true; }
  float* row_at(int64_t, int) const { return nullptr; }
  void store(int64_t, int64_t, int, int, float, float) const {}
};
}  // namespace split
inline split::Store dense(float*, const Product&) { return {}; }
template <typename... T>
int multiply(const T&...) { return -1; }  // never called: all products here are small
}  // namespace warpsmith
