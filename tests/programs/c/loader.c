/* Loads a library that allocates, uses it, unloads it, three times; with `keep` it has it until it ends.
 * usage: loader LIBRARY [keep] */
#include "pattern.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    uint64_t *memory = patterned(48, 1);
    for (int round = 0; round < 3; round++) {
        void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
        if (!library) {
            printf("dlopen: %s\n", dlerror());
            return 96;
        }
        int (*check)(void) = (int (*)(void))dlsym(library, "plugin_check");
        verify(memory, 48 * 256, 1, "loader");
        if (!check || check() != 42) return 95;
        if (argc < 3) dlclose(library);
    }
    verify(memory, 48 * 256, 1, "loader at the end");
    puts("plugin ok");
    return 0;
}
