/* A debugger keeps register sets on its heap: the iovec that names them is near, the memory behind it is fresh, or far. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t BYTES = (size_t)48 << 20;
static unsigned char *memory;

/* Everything else is used meanwhile, so that the register set becomes far. */
static long fill(void) {
    long sum = 0;
    for (size_t i = 0; i < BYTES; i += 4096) memory[i] = (i >> 12) % 251;
    for (size_t i = 0; i < BYTES; i += 4096) sum += memory[i];
    return sum;
}

static void request(int what, pid_t child, struct user_regs_struct *registers, const char *name) {
    struct iovec set = {registers, sizeof *registers};
    long result = ptrace(what, child, (void *)NT_PRSTATUS, &set);
    printf("%s: %s, %zu bytes\n", name, result ? strerror(errno) : "in order", set.iov_len);
}

int main(void) {
    pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    memory = malloc(BYTES);
    if (ptrace(PTRACE_ATTACH, child, 0, 0) || waitpid(child, NULL, 0) != child) return 1;
    struct user_regs_struct *first = aligned_alloc(4096, 4096), *second = aligned_alloc(4096, 4096);
    request(PTRACE_GETREGSET, child, first, "into a fresh page");
    fill();
    request(PTRACE_SETREGSET, child, first, "from a page not used for long");
    request(PTRACE_GETREGSET, child, second, "once more");
    fill();
    request(PTRACE_GETREGSET, child, second, "into a page not used for long");
    printf("%s, %ld\n", memcmp(first, second, sizeof *first) ? "other registers" : "the same registers", fill());
    kill(child, SIGKILL);
    return waitpid(child, NULL, 0) != child;
}
