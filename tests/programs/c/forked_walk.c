/* A walk and a fork. The parent writes to each of PAGES pages, upwards, and forks; the child walks down over them twice, and writes to them in the
 * second round; then the parent walks up again. Prints where the pages are. Each ends with 1 when it reads what the other has written.
 *
 * forked_walk PAGES */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static int child(volatile unsigned long *words, size_t step, size_t pages) {
    for (int round = 0; round < 2; round++)
        for (size_t page = pages; page-- > 0;) {
            if (words[page * step] != page + 1)
                return 1;
            if (round == 1)
                words[page * step] = 0;
        }
    return 0;
}

int main(int argc, char **argv) {
    size_t pages = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, step = PAGE / sizeof(unsigned long);
    volatile unsigned long *words = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == 0 || words == MAP_FAILED)
        return 2;
    printf("%p\n", (void *)words);
    fflush(stdout);
    for (size_t page = 0; page < pages; page++)
        words[page * step] = page + 1;
    pid_t forked = fork();
    if (forked == 0)
        _exit(child(words, step, pages));
    int status = 1;
    if (forked < 0 || waitpid(forked, &status, 0) != forked || status != 0)
        return 1;
    for (size_t page = 0; page < pages; page++)
        if (words[page * step] != page + 1)
            return 1;
    printf("done\n");
    return 0;
}
