/* Holds memory until a file called `enough` appears in the working directory. usage: outside MEBIBYTES [bare]
 * With `bare`, the memory is mapped by the instruction itself, without libc: nobody else knows of it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *map_bare(size_t bytes) {
    long result = SYS_mmap;
    register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS;
    register long fd __asm__("r8") = -1;
    register long offset __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(0L), "S"(bytes), "d"((long)(PROT_READ | PROT_WRITE)), "r"(flags), "r"(fd), "r"(offset)
                     : "rcx", "r11", "memory");
    return (void *)result;
}

int main(int count, char **arguments) {
    size_t bytes = strtoull(arguments[1], NULL, 10) << 20;
    unsigned char *memory = count > 2 && !strcmp(arguments[2], "bare") ? map_bare(bytes) : malloc(bytes);
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = at >> 12;
    puts("holds");
    fflush(stdout);
    while (access("enough", F_OK)) usleep(10000);
    for (size_t at = 0; at < bytes; at += 4096)
        if (memory[at] != (unsigned char)(at >> 12)) return 99;
    puts("outside ok");
    return 0;
}
