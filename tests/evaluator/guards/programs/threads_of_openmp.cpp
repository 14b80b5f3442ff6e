// OpenMP in its forms, and the locks that go with it: threads that the harness knows.
#include <omp.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>

std::mutex lock;
std::once_flag once;
std::shared_mutex shared;
std::atomic<double> total;
thread_local std::string scratch;

extern "C" double threads(float* x, int n) {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(static) num_threads(2)
  for (int i = 0; i < n; ++i) sum += x[i];
#pragma omp parallel for schedule(dynamic, 4) reduction(max : sum)
  for (int i = 0; i < n; ++i) sum = sum > x[i] ? sum : x[i];
#pragma omp parallel for schedule(guided) collapse(2)
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) x[i] += j;
#pragma omp parallel for schedule(runtime) ordered
  for (unsigned long long i = 0; i < static_cast<unsigned long long>(n); ++i) {
#pragma omp ordered
    x[i] += 1;
  }
#pragma omp parallel
  {
#pragma omp single
    for (int i = 0; i < n; ++i) {
#pragma omp task firstprivate(i) depend(inout : x[i])
      x[i] *= 2;
    }
#pragma omp taskwait
#pragma omp taskgroup
    {
#pragma omp taskloop grainsize(4)
      for (int i = 0; i < n; ++i) x[i] += 1;
    }
#pragma omp critical
    sum += 1;
#pragma omp atomic
    sum += 1;
#pragma omp barrier
#pragma omp sections
    {
#pragma omp section
      x[0] = 1;
#pragma omp section
      x[1] = 1;
    }
  }
#pragma omp simd reduction(+ : sum)
  for (int i = 0; i < n; ++i) sum += x[i];
  omp_lock_t simple;
  omp_init_lock(&simple);
  omp_set_lock(&simple);
  omp_unset_lock(&simple);
  omp_destroy_lock(&simple);
  omp_set_num_threads(omp_get_max_threads());
  omp_set_dynamic(0);
  std::lock_guard<std::mutex> guard(lock);
  std::shared_lock<std::shared_mutex> reading(shared);
  std::call_once(once, [] { total = 1; });
  scratch = std::to_string(omp_get_num_procs());
  static const std::string kept = "made once";
  return sum + total + omp_get_thread_num() + omp_in_parallel() + kept.size() + std::thread::hardware_concurrency();
}
