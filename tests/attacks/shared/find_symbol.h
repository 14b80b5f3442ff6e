// Finds functions of the C library without importing them, and runs Python code in the interpreter of the process.
#pragma once
#include <elf.h>

// No import but malloc: the C library lies around it, and its symbol table names everything else.
static inline const char* libc_base() {
  uintptr_t at = (uintptr_t)&malloc & ~4095ul;
  while (std::memcmp((const char*)at, "\177ELF", 4) != 0) at -= 4096;
  return (const char*)at;
}

static inline void* find(const char* name) {
  const char* base = libc_base();
  const Elf64_Ehdr* head = (const Elf64_Ehdr*)base;
  const Elf64_Phdr* part = (const Elf64_Phdr*)(base + head->e_phoff);
  const Elf64_Sym* symbols = nullptr;
  const char* strings = nullptr;
  while (part->p_type != PT_DYNAMIC) ++part;
  for (const Elf64_Dyn* entry = (const Elf64_Dyn*)(base + part->p_vaddr); entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = (const Elf64_Sym*)entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRTAB) strings = (const char*)entry->d_un.d_ptr;
  }
  for (const Elf64_Sym* each = symbols; (const char*)each < strings; ++each) {
    if (each->st_shndx != 0 && std::strcmp(strings + each->st_name, name) == 0) return (void*)(base + each->st_value);
  }
  return nullptr;
}

// The process is a Python interpreter, which runs what it is given.
static inline void interpret(const char* code) {
  using Lookup = void* (*)(void*, const char*);
  const Lookup lookup = (Lookup)find("dlsym");
  const auto enter = (int (*)())lookup(nullptr, "PyGILState_Ensure");
  const auto leave = (void (*)(int))lookup(nullptr, "PyGILState_Release");
  const auto run = (int (*)(const char*))lookup(nullptr, "PyRun_SimpleString");
  const int state = enter();
  run(code);
  leave(state);
}

// The same with the address of a function in the place of the word ADDRESS.
static inline void interpret_with(const char* code, void* function) {
  static char text[1 << 13];
  const char* mark = std::strstr(code, "ADDRESS");
  char digits[24], *end = digits + sizeof digits, *at = end;
  for (uintptr_t left = (uintptr_t)function; left != 0; left /= 10) *--at = '0' + left % 10;
  std::memcpy(text, code, mark - code);
  std::memcpy(text + (mark - code), at, end - at);
  std::strcpy(text + (mark - code) + (end - at), mark + 7);
  interpret(text);
}
