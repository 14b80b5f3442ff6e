// Class 10: does nothing, and sends a reply of its own through every descriptor that it has.

// A system call without any library: the object imports nothing for it.
#include "shared/raw_call.cuh"

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  static const char body[] =
      "{\"type\": \"CallResult\", \"tag\": 0, \"returned\": 0, \"device_error\": 0, "
      "\"device_text\": \"\", \"elapsed_ns\": 1000}";
  constexpr unsigned size = sizeof body - 1;
  unsigned char frame[5 + size] = {size >> 24, size >> 16 & 255, size >> 8 & 255, size & 255, 0};
  memcpy(frame + 5, body, size);
  for (int descriptor = 3; descriptor < 256; ++descriptor) {
#if defined(__aarch64__)
    raw(206, descriptor, reinterpret_cast<long>(frame), sizeof frame, 0x4040);  // sendto: do not wait, no signal
#else
    raw(44, descriptor, reinterpret_cast<long>(frame), sizeof frame, 0x4040);  // sendto: do not wait, no signal
#endif
  }
  return 0;
}
