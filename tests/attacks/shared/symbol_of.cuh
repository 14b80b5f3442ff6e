// An exported function of a mapped library, from its own tables in memory.
static void* symbol_of(uintptr_t base, const char* name) {
  const auto* head = reinterpret_cast<const Elf64_Ehdr*>(base);
  const auto* parts = reinterpret_cast<const Elf64_Phdr*>(base + head->e_phoff);
  const Elf64_Dyn* table = nullptr;
  for (int i = 0; i < head->e_phnum; ++i) {
    if (parts[i].p_type == PT_DYNAMIC) table = reinterpret_cast<const Elf64_Dyn*>(base + parts[i].p_vaddr);
  }
  uintptr_t strings = 0, symbols = 0;
  for (; table != nullptr && table->d_tag != DT_NULL; ++table) {
    const uintptr_t at = table->d_un.d_ptr < base ? base + table->d_un.d_ptr : table->d_un.d_ptr;
    if (table->d_tag == DT_STRTAB) strings = at;
    if (table->d_tag == DT_SYMTAB) symbols = at;
  }
  if (symbols == 0) return nullptr;
  // The linker puts the names right behind the symbols.
  const auto* s = reinterpret_cast<const Elf64_Sym*>(symbols);
  for (; reinterpret_cast<uintptr_t>(s + 1) <= strings; ++s) {
    if (s->st_value != 0 && strcmp(reinterpret_cast<const char*>(strings + s->st_name), name) == 0) {
      return reinterpret_cast<void*>(base + s->st_value);
    }
  }
  return nullptr;
}
