// One attack each, chosen by a macro: what the compiler makes of it must still show.
#if defined(THREAD)
#include <thread>
extern "C" void run(int* x) { std::thread([=] { *x = 1; }).detach(); }
#elif defined(ASYNC)
#include <future>
extern "C" int run(int x) { return std::async(std::launch::async, [=] { return x; }).get(); }
#elif defined(CHRONO)
#include <chrono>
extern "C" long run() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
#elif defined(SLEEP)
#include <chrono>
#include <thread>
extern "C" void run() { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }
#elif defined(STREAM)
#include <fstream>
extern "C" void run(int x) { std::ofstream("left.txt") << x; }
#elif defined(FILES)
#include <filesystem>
extern "C" bool run() { return std::filesystem::exists("/etc/passwd"); }
#elif defined(ENTROPY)
#include <random>
extern "C" unsigned run() { return std::random_device()(); }
#elif defined(VARIABLE)
#include <cstdlib>
extern "C" const char* run() { return std::getenv("HOME"); }
#elif defined(LOADER)
#include <dlfcn.h>
extern "C" void* run() { return dlsym(dlopen("libblas.so.3", RTLD_NOW), "sgemm_"); }
#elif defined(PATCH)
#include <sys/mman.h>
extern "C" int run(void* page) { return mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC); }
#elif defined(CHANNEL)
#include <unistd.h>
extern "C" void run() { (void)!write(3, "{}", 2); }
#elif defined(SHELL)
#include <cstdlib>
extern "C" int run() { return std::system("true"); }
#elif defined(ALIAS)
extern "C" int another_name(int (*)(void*), void*, int, void*);
#if defined(__aarch64__)
__asm__(".symver another_name, clone@GLIBC_2.17");
#else
__asm__(".symver another_name, clone@GLIBC_2.2.5");
#endif
extern "C" int run() { return another_name(nullptr, nullptr, 0, nullptr); }
#elif defined(WEAK)
extern "C" __attribute__((weak)) int fork();
extern "C" int run() { return fork ? fork() : 0; }
#endif
