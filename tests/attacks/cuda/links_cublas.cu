// Class 15: calls cuBLAS through weak symbols, which link without the library and work wherever it is loaded.
extern "C" __attribute__((weak)) int cublasCreate_v2(void** handle);
extern "C" __attribute__((weak)) int cublasSetStream_v2(void* handle, void* stream);
extern "C" __attribute__((weak)) int cublasSgemm_v2(void* handle, int ta, int tb, int m, int n, int k,
                                                    const float* alpha, const float* a, int lda, const float* b,
                                                    int ldb, const float* beta, float* c, int ldc);

extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void* workspace,
                      void* stream) {
  if (cublasCreate_v2 == nullptr || cublasSetStream_v2 == nullptr || cublasSgemm_v2 == nullptr) return 5;
  static void* handle = nullptr;
  if (handle == nullptr && cublasCreate_v2(&handle) != 0) return 6;
  const float one = 1.f, zero = 0.f;
  cublasSetStream_v2(handle, stream);
  return cublasSgemm_v2(handle, 0, 0, static_cast<int>(n), static_cast<int>(m), static_cast<int>(k), &one, b,
                        static_cast<int>(n), a, static_cast<int>(k), &zero, out, static_cast<int>(n));
}
