// Printing, streams, strings, numbers in text: the standard streams lead nowhere, so they may be used.
#include <cassert>
#include <cctype>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>

static void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
}

extern "C" int text(const char* words, int n) {
  std::cout << std::setprecision(3) << 1.5 << ' ' << n << std::endl;
  std::ostringstream stream;
  stream << std::hex << n << 2.0f << true << static_cast<const void*>(words);
  std::istringstream in(stream.str());
  int number = 0;
  in >> number;
  std::string joined = std::to_string(n) + words + std::to_string(1.5);
  joined.replace(0, 1, "zz").insert(0, "q");
  number += std::stoi(joined) + static_cast<int>(std::stod(words)) + std::atoi(words) + std::strtol(words, nullptr, 10);
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%d %f", n, 1.0);
  std::sscanf(words, "%d", &number);
  std::strncat(buffer, words, 3);
  std::from_chars(words, words + 1, number);
  std::printf("%d\n", number);
  std::puts("x");
  std::putchar('c');
  std::fputs("x", stdout);
  std::fwrite("x", 1, 1, stderr);
  std::fflush(stdout);
  std::perror("x");
  say("%d", n);
  assert(n < 100);
  if (n == 7) std::abort();
  return std::toupper(words[0]) + (std::isalpha(words[1]) != 0) + static_cast<int>(std::strlen(buffer));
}
