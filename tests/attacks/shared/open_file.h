static long open_file(const char* name, long flags, long mode = 0) {
#if defined(__aarch64__)
  return raw(SYS_openat, -100, (long)name, flags, mode);  // AT_FDCWD
#else
  return raw(SYS_open, (long)name, flags, mode);
#endif
}
