// Where a library is mapped, from /proc/self/maps.
static uintptr_t base_of(const char* name) {
  static char text[1 << 20];
#if defined(__aarch64__)
  const long file = raw(56, -100, reinterpret_cast<long>("/proc/self/maps"));  // openat, AT_FDCWD
  if (file < 0) return 0;
  size_t size = 0;
  for (long got = 1; got > 0 && size + 4096 < sizeof text; size += got > 0 ? got : 0) {
    got = raw(63, file, reinterpret_cast<long>(text + size), sizeof text - 1 - size);
  }
  raw(57, file);
#else
  const long file = raw(2, reinterpret_cast<long>("/proc/self/maps"));
  if (file < 0) return 0;
  size_t size = 0;
  for (long got = 1; got > 0 && size + 4096 < sizeof text; size += got > 0 ? got : 0) {
    got = raw(0, file, reinterpret_cast<long>(text + size), sizeof text - 1 - size);
  }
  raw(3, file);
#endif
  text[size] = 0;
  const char* found = strstr(text, name);
  if (found == nullptr) return 0;
  while (found > text && found[-1] != '\n') --found;
  uintptr_t base = 0;
  for (; *found != '-'; ++found) base = 16 * base + (*found <= '9' ? *found - '0' : *found - 'a' + 10);
  return base;
}
