/* Boehm's collector, incremental: it write-protects its heap and repairs the faults by SIGSEGV; the program reads a file into its memory. */
#include <fcntl.h>
#include <gc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct node {
    struct node *next;
    long value;
    char rest[200];
};

int main(void) {
    GC_INIT();
    GC_enable_incremental();
    int fd = open("/dev/zero", O_RDONLY);
    struct node *list = NULL;
    long got = 0, failed = 0, sum = 0, count = 0;
    for (long i = 0; i < 100000; i++) {
        struct node *node = GC_MALLOC(sizeof *node);
        node->value = i;
        node->next = list;
        list = node;
        if (i % 2000 == 0) {
            char *buffer = GC_MALLOC_ATOMIC(1 << 20);
            memset(buffer, 1, 1 << 20);
            ssize_t bytes = read(fd, buffer, 1 << 20);
            if (bytes < 0) failed++;
            else got += bytes;
        }
        if (i % 50000 == 0)
            for (struct node *each = list; each; each = each->next) each->value++;
    }
    for (struct node *each = list; each; each = each->next) sum += each->value, count++;
    printf("%ld nodes, sum %ld, read %ld MiB, collected %d, failed reads %ld\n", count, sum, got >> 20, GC_get_gc_no() > 0, failed);
    return 0;
}
