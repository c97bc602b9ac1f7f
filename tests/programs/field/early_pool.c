/* Maps memory inside the far range before any library begins. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

static void *pool;

static void reserve(void) { pool = mmap((void *)0x490000000000, 1ul << 34, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
__attribute__((section(".preinit_array"), used)) static void (*first)(void) = reserve;

int main(void) {
    printf("a pool %d\n", pool != MAP_FAILED);
    return 0;
}
