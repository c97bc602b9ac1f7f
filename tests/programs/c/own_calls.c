// A program that makes memory calls by the `syscall` instruction, as runtimes with system calls of their own do. `threads`: more threads than
// Hinterland has stacks for such calls drop pages and fill them again; `registers`: a call keeps what the instruction keeps;
// `child`: a child that was made by the instruction, too, makes a memory call; `narrow` (compiled with -DNARROW): a function with no
// room around its instruction.

#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, THREADS = 24, ROUNDS = 30 };
static const size_t PART = 2 << 20, FILLER = 48 << 20;

static __attribute__((noinline)) long own_call(long number, long a, long b, long c, long d) {
    register long fourth __asm__("r10") = d;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return answer;
}

static unsigned char *map(size_t bytes) {
    unsigned char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) exit(2);
    return at;
}

// Pushes everything else out of a budget of 16 MiB.
static void chill(void) {
    static unsigned char *filler;
    if (!filler) filler = map(FILLER);
    for (size_t i = 0; i < FILLER; i += PAGE) filler[i]++;
}

static void *drop(void *argument) {
    unsigned char *part = argument;
    size_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < PART; i += PAGE) {
            wrong += part[i] != 0;
            part[i] = (unsigned char)(i / PAGE % 200 + 1);
        }
        wrong += own_call(SYS_madvise, (long)part, PART, MADV_DONTNEED, 0) != 0;
    }
    return (void *)wrong;
}

static size_t threads(void) {
    unsigned char *all = map(THREADS * PART);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&thread[i], NULL, drop, all + i * PART)) exit(2);
    }
    size_t wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        void *found;
        pthread_join(thread[i], &found);
        wrong += (size_t)found;
    }
    return wrong;
}

// probe(number, before, after): makes a call with all registers that the instruction keeps loaded from `before` (six arguments, six
// others, sixteen vectors of 32 bytes), and stores them to `after`.
long probe(long number, const uint64_t *before, uint64_t *after);
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define LOAD(n) " vmovdqu 96+32*" #n "(%rcx), %ymm" #n "\n"
#define STORE(n) " vmovdqu %ymm" #n ", 96+32*" #n "(%rcx)\n"
#define GENERAL(X) \
    X(0, rdi) X(8, rsi) X(16, rdx) X(24, r10) X(32, r8) X(40, r9) X(48, rbx) X(56, rbp) X(64, r12) X(72, r13) X(80, r14) X(88, r15)
#define LOAD_GENERAL(at, name) " mov " #at "(%rcx), %" #name "\n"
#define STORE_GENERAL(at, name) " mov %" #name ", " #at "(%rcx)\n"
__asm__(".text\n.globl probe\n.type probe, @function\nprobe:\n.cfi_startproc\n"
        " push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rdx\n"
        " mov %rdi, %rax\n mov %rsi, %rcx\n" EACH(LOAD) GENERAL(LOAD_GENERAL)
        " syscall\n"
        " pop %rcx\n" GENERAL(STORE_GENERAL) EACH(STORE)
        " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n vzeroupper\n ret\n"
        ".cfi_endproc\n.size probe, . - probe\n");

enum { WORDS = 12 + 16 * 4 };

static size_t registers(void) {
    if (!__builtin_cpu_supports("avx")) return 0;
    unsigned char *at = map(PART);
    memset(at, 1, PART);
    chill();
    static uint64_t before[WORDS], after[WORDS];
    for (size_t i = 0; i < WORDS; i++) before[i] = i * 0x9e3779b97f4a7c15u + 11;
    before[0] = (uint64_t)at, before[1] = PART, before[2] = MADV_DONTNEED;
    size_t wrong = probe(SYS_madvise, before, after) != 0;
    for (size_t i = 0; i < WORDS; i++) wrong += before[i] != after[i];
    for (size_t i = 0; i < PART; i++) wrong += at[i];
    before[0] += 1; // An error comes as the kernel gives it.
    return wrong + (probe(SYS_madvise, before, after) != -22);
}

// In the child nothing is far, so there is nothing to drop; it must neither hang nor find anything of its parent's.
static int child(void) {
    unsigned char *at = map(PART);
    memset(at, 5, PART);
    long pid = own_call(SYS_fork, 0, 0, 0, 0);
    if (!pid) {
        own_call(SYS_madvise, (long)at, PART, MADV_DONTNEED, 0);
        own_call(SYS_munmap, (long)at, PART, 0, 0);
        own_call(SYS_exit_group, 7, 0, 0, 0);
    }
    int status = 0;
    waitpid((pid_t)pid, &status, 0);
    size_t wrong = 0;
    for (size_t i = 0; i < PART; i++) wrong += at[i] != 5;
    return wrong ? 99 : WEXITSTATUS(status);
}

#ifdef NARROW
// Two bytes before the instruction, and code that jumps right to it.
__asm__(".text\n.globl narrow\n.type narrow, @function\nnarrow:\n.cfi_startproc\n"
        " mov %edi, %eax\n1: syscall\n cmp $-4, %eax\n je 1b\n ret\n.cfi_endproc\n.size narrow, . - narrow\n");
long narrow(int number);
#endif

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
#ifdef NARROW
    printf("narrow: %d\n", narrow(SYS_getpid) == getpid());
#endif
    if (!strcmp(what, "threads")) printf("threads: wrong %zu\n", threads());
    if (!strcmp(what, "registers")) printf("registers: wrong %zu\n", registers());
    if (!strcmp(what, "child")) printf("child: %d\n", child());
    return 0;
}
