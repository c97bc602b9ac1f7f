/* Calls that answer EFAULT for an address that is none, and that change what they were asked to change before they tell what was there; then
 * the same calls with addresses in evicted pages. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include "tell.h"
#include <dlfcn.h>
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static const uint64_t mebibytes = 32;
typedef int (*mask_function)(int, const sigset_t *, sigset_t *);

static void limits(void *bad) {
    struct rlimit limit;
    static const int resources[] = {RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_CORE};
    for (unsigned index = 0; index < sizeof resources / sizeof *resources; index++) {
        int resource = resources[index];
        TELL(getrlimit(resource, bad));
        TELL(setrlimit(resource, bad));
        TELL(prlimit(0, resource, bad, &limit));
        TELL(syscall(SYS_getrlimit, resource, bad));
        TELL(syscall(SYS_setrlimit, resource, bad));
        TELL(syscall(SYS_prlimit64, getpid(), resource, bad, bad));
        getrlimit(resource, &limit);
        rlim_t lower = limit.rlim_cur = limit.rlim_max < 1 << 30 ? limit.rlim_max / 2 : (rlim_t)1 << 40;
        TELL(prlimit(0, resource, &limit, bad));
        getrlimit(resource, &limit);
        printf("it was set: %d\n", limit.rlim_cur == lower);
    }
}

static void masks(void *bad) {
    sigset_t set, now;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGBUS);
    TELL(sigprocmask(SIG_BLOCK, &set, bad));
    sigprocmask(SIG_UNBLOCK, &set, &now);
    printf("blocked %d %d\n", sigismember(&now, SIGTERM), sigismember(&now, SIGBUS));
    TELL(pthread_sigmask(SIG_BLOCK, NULL, bad) == EFAULT);
    TELL(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, bad, 8));
    /* libc's own, whatever is put in its place. */
    mask_function own = (mask_function)dlvsym(RTLD_DEFAULT, "sigprocmask", "GLIBC_2.2.5");
    TELL(own(SIG_BLOCK, NULL, bad));
    TELL(sigaltstack(bad, NULL));
    TELL(sigaltstack(NULL, bad));
}

static long child(void *arguments, size_t bytes) {
    fflush(stdout);
    long pid = syscall(SYS_clone3, arguments, bytes);
    if (pid == 0) _exit(5);
    int status = -1;
    if (pid > 0) waitpid(pid, &status, 0);
    return pid < 0 ? pid : status;
}

int main(void) {
    const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS, read_write = PROT_READ | PROT_WRITE;
    uint64_t *memory = malloc(mebibytes << 20);
    fill(memory, mebibytes * 256, 1);
    char *pages = mmap(NULL, 16 * PAGE, read_write, anonymous, -1, 0);
    memset(pages, 0, 16 * PAGE);
    munmap(pages + 4 * PAGE, PAGE);
    mprotect(pages + 8 * PAGE, PAGE, PROT_NONE);
    void *bad[] = {(void *)1, (void *)-1L, pages + 4 * PAGE, pages + 5 * PAGE - 4, pages + 8 * PAGE};
    for (unsigned index = 0; index < sizeof bad / sizeof *bad; index++) {
        printf("address %u\n", index);
        limits(bad[index]);
        masks(bad[index]);
        TELL(mincore(pages, PAGE, bad[index]));
        TELL(child(bad[index], sizeof(struct clone_args)));
    }
    TELL(child(NULL, sizeof(struct clone_args)));
    TELL(child(pages, 40));
    TELL(child(pages, PAGE + 8));
    TELL(child(pages + 3 * PAGE, PAGE + 8));
    TELL(child(pages + 4 * PAGE - 512, 520));
    struct clone_args *arguments = (struct clone_args *)(pages + 2 * PAGE);
    arguments->exit_signal = SIGCHLD;
    TELL(child(arguments, 520));
    pages[2 * PAGE + 512] = 1;
    TELL(child(arguments, 520));
    verify(memory, mebibytes * 256, 1, "after bad addresses");

    /* Each in a page of its own, which has been evicted. */
    struct rlimit *limit = (struct rlimit *)(pages + 3 * PAGE);
    sigset_t *mask = (sigset_t *)(pages + 6 * PAGE);
    stack_t *stack = (stack_t *)(pages + 7 * PAGE);
    verify(memory, mebibytes * 256, 1, "before evicted ones");
    TELL(getrlimit(RLIMIT_NOFILE, limit));
    TELL(limit->rlim_cur);
    fill(memory, mebibytes * 256, 2);
    TELL(syscall(SYS_prlimit64, 0, RLIMIT_CORE, limit, limit));
    TELL(sigprocmask(SIG_BLOCK, NULL, mask));
    TELL(sigaltstack(NULL, stack));
    TELL(stack->ss_flags);
    fill(memory, mebibytes * 256, 3);
    TELL(child(arguments, sizeof(struct clone_args)));
    verify(memory, mebibytes * 256, 3, "after evicted ones");
    return 0;
}
