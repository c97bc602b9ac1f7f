/* A library that is opened with RTLD_DEEPBIND, as PHP opens its extensions, frees what the program allocated, and the other way round:
 * the operators new and delete of the C++ library. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    enum { BLOCKS = 20000, BYTES = 2048 };
    // A question: nothing is opened, and nothing said.
    if (dlopen("libhinterland-absent.so", RTLD_NOW | RTLD_NOLOAD | RTLD_DEEPBIND)) return 97;
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_DEEPBIND);
    if (!library) return puts(dlerror()), 98;
    void *(*make)(size_t) = (void *(*)(size_t))dlsym(library, "_Znwm");
    void (*drop)(void *) = (void (*)(void *))dlsym(library, "_ZdlPv");
    static unsigned char *blocks[BLOCKS];
    unsigned long sum = 0;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(i & 1 ? malloc(BYTES) : make(BYTES), i % 251 + round, BYTES);
        for (int i = 0; i < BLOCKS; i++) {
            sum = sum * 31 + blocks[i][i % BYTES];
            if (i % 3) drop(blocks[i]);
            else free(blocks[i]);
        }
    }
    printf("sum %lu\n", sum);
    return 0;
}
