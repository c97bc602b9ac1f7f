/* Threads recover from SIGBUS on a truncated file, by a jump or by a page that the handler maps, while far memory comes and goes. The
 * handler reads far memory, too. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 40, MEBIBYTES = 40 };
static uint64_t *memory;
static _Thread_local sigjmp_buf back;
static _Thread_local int maps;
static atomic_int wrong, jumps, mapped;

static void look(uint64_t first, uint64_t step) {
    for (uint64_t page = first; page < MEBIBYTES * 256; page += step)
        wrong += memory[page * PAGE_WORDS + 7] != pattern_word(page, 7, 1);
}

static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)context;
    wrong += signal != SIGBUS || info->si_code != BUS_ADRERR;
    look(0, 97);
    if (!maps) {
        jumps++;
        siglongjmp(back, 1);
    }
    mapped++;
    void *page = (void *)((uintptr_t)info->si_addr & ~4095ul);
    mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *work(void *number) {
    for (volatile int round = 0; round < ROUNDS; round++) {
        FILE *volatile file = tmpfile();
        if (!file || ftruncate(fileno(file), 1 << 20)) exit(2);
        volatile unsigned char *view = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
        if (ftruncate(fileno(file), 4096)) exit(2);
        maps = round & 1;
        if (!sigsetjmp(back, 1)) {
            view[8192 + round] = 5;
            wrong += !maps || view[8192 + round] != 5;
        }
        munmap((void *)view, 1 << 20);
        fclose(file);
        look((uint64_t)(uintptr_t)number, 61);
    }
    return NULL;
}

int main(void) {
    memory = patterned(MEBIBYTES, 1);
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGBUS, &action, NULL);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(threads + i, NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%d jumps, %d mapped, %d wrong\n", jumps, mapped, wrong);
    return 0;
}
