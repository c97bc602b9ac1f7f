/* A second libc, in a linker namespace of its own (dlmopen(3)), works on the program's memory: it writes it to a pipe, reads it back and
 * compares. Its system calls come from other instructions than those of the first one. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

int main(void) {
    const uint64_t mebibytes = 32, pages = mebibytes * 256;
    uint64_t *memory = patterned(mebibytes, 1), *back = calloc(pages, 4096);
    void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    if (!libc) return printf("%s\n", dlerror()), 1;
    ssize_t (*write_there)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(libc, "write");
    ssize_t (*read_there)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))dlsym(libc, "read");
    int (*compare)(const void *, const void *, size_t) = (int (*)(const void *, const void *, size_t))dlsym(libc, "memcmp");
    int ends[2];
    if (!write_there || !read_there || !compare || pipe(ends)) return 2;
    unsigned long failed = 0;
    for (uint64_t page = 0; page < pages; page++) {
        failed += write_there(ends[1], memory + page * PAGE_WORDS, 4096) != 4096;
        failed += read_there(ends[0], back + page * PAGE_WORDS, 4096) != 4096;
    }
    verify(back, pages, 1, "through the pipe");
    printf("%lu calls failed, difference %d\n", failed, compare(memory, back, mebibytes << 20));
    return 0;
}
