// Fills memory, confines itself by a filter of system calls of its own, and goes on with what it has. What it prints is the same
// without Hinterland.
//
//   confined WAY ACTION [tsync]
//
// ACTION: what happens to calls that are not allowed: kill, errno.
// WAY:
//   pages   allows write and exit_group, and reads and writes all its memory; a second thread of its own does the same
//   heap    allows what a heap needs, and allocates, frees, starts a thread
//   calls   allows read and write, and makes them on memory that is far
//   fork    allows forks; the child reads all of it
//   trap    a call that is trapped is made good by a handler of SIGSYS
//   mode    asks what confines it, before and after
//   twice   installs a second filter, which is stricter
//   wrong   filters that the kernel refuses: of no length, of too many instructions, of bad ones, at bad addresses
//   strict  seccomp's strict mode
//   long    a filter of 4,000 instructions, which allow everything
//   denied  tries a call that is not allowed
//   spawn   forbids what Hinterland begins with, and starts a program in a child
//   exec    the same, in its own place
//   bare    forbids ioctl, by an instruction of the program's own, and works on its memory until it is ended
//   masks   no filter: blocks all signals by syscall(2), the old mask at a bad address, and makes calls on far memory
//   gate    tries calls that are not allowed by Hinterland's own instructions: they help nobody else (natively there are none)

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 64 << 20, PAGE = 4096, LONGEST = 4096 };

static unsigned char *memory;

static void fill(void) {
    for (size_t at = 0; at < BYTES; at += PAGE)
        memory[at] = (at >> 12) % 251;
}

// Every page has what was written there; 1 is added.
static long go_on(int added) {
    long wrong = 0;
    for (size_t at = 0; at < BYTES; at += PAGE) {
        wrong += memory[at] != (unsigned char)((at >> 12) % 251 + added);
        memory[at]++;
    }
    return wrong;
}

static void say(const char *what, long value) {
    char line[80];
    int length = snprintf(line, sizeof line, "%s %ld\n", what, value);
    if (write(1, line, length) != length)
        _exit(9);
}

static int install(const int *allowed, int count, unsigned action, unsigned flags) {
    struct sock_filter program[80];
    int length = 0;
    program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int call = 0; call < count; call++) {
        program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[call], 0, 1);
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    struct sock_fprog filter = {length, program};
    // Both ways to ask for it.
    if (flags == 0)
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
}

#define INSTALL(action, flags, ...) \
    do { \
        static const int allowed[] = {__VA_ARGS__}; \
        if (install(allowed, sizeof allowed / sizeof *allowed, action, flags)) { \
            perror("seccomp"); \
            exit(8); \
        } \
    } while (0)

static pthread_barrier_t begun;
static volatile int turn;

static void *beside(void *unused) {
    pthread_barrier_wait(&begun);
    while (turn == 0)
        ;
    long wrong = go_on(1);
    turn = wrong == 0 ? 2 : 3;
    for (;;)
        ;
    return unused;
}

static void *thread(void *block) {
    memset(block, 3, 1 << 20);
    return block;
}

static int heap(void) {
    unsigned char *blocks[32];
    for (int round = 0; round < 8; round++) {
        for (int index = 0; index < 32; index++) {
            blocks[index] = malloc((index + 1) * 40000);
            memset(blocks[index], index + round, (index + 1) * 40000);
        }
        for (int index = 0; index < 32; index++) {
            for (int at = 0; at < (index + 1) * 40000; at += 1000)
                if (blocks[index][at] != (unsigned char)(index + round))
                    return 1;
            free(blocks[index]);
        }
    }
    pthread_t other;
    unsigned char *block = malloc(1 << 20);
    if (pthread_create(&other, NULL, thread, block) || pthread_join(other, NULL) || block[99999] != 3)
        return 2;
    memory = realloc(memory, BYTES * 2);
    return memory == NULL || memory[PAGE] != 2;
}

static int calls(int ends[2]) {
    for (size_t at = 0; at < BYTES; at += 64 * PAGE) {
        unsigned char *page = memory + at, *other = memory + (at + BYTES / 2) % BYTES;
        unsigned char expected = page[0];
        if (at % (2 * 64 * PAGE) == 0)
            expected = (at >> 12) % 251 + 1;
        if (write(ends[1], page, PAGE) != PAGE || read(ends[0], other + PAGE, PAGE) != PAGE || other[PAGE] != expected)
            return 1;
    }
    return 0;
}

static void on_trap(int signal, siginfo_t *info, void *context) {
    (void)signal;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = info->si_syscall == SYS_getppid ? 4711 : -ENOSYS;
}

static int wrong(void) {
    static struct sock_filter program[LONGEST + 1];
    for (int at = 0; at <= LONGEST; at++)
        program[at] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog none = {0, program}, many = {LONGEST + 1, program}, bad = {3, NULL}, unknown = {1, program};
    static struct sock_filter divide = BPF_STMT(0xffff, 0);
    unknown.filter = &divide;
    struct sock_fprog *cases[] = {&none, &many, &bad, &unknown, NULL, (struct sock_fprog *)8};
    for (int index = 0; index < 6; index++) {
        int rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, cases[index]);
        say(rc == 0 ? "taken" : strerrorname_np(errno), index);
    }
    say("flags", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1 << 20, &none));
    return 0;
}

// A call by the instruction at an address, which is followed by a return.
static long by(unsigned long address, long number, long a, long b, long c) {
    long result;
    register long fourth __asm__("r10") = 0;
    __asm__ volatile("call *%1" : "=a"(result) : "r"(address), "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

static int gate(void) {
    enum { HERE = 0x10 };
    const unsigned long page = 0x17000;
    char *nothing[] = {NULL};
    for (unsigned long address = page; address < page + 3 * HERE; address += HERE) {
        long answers[] = {
            by(address, SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDONLY), by(address, SYS_execve, (long)"/bin/true", (long)nothing, 0),
            by(address, SYS_socket, 2, 1, 0),                               by(address, SYS_kill, getpid(), SIGKILL, 0),
            by(address, SYS_write, 2, (long)"x", 1),                        by(address, SYS_mprotect, (long)memory & -PAGE, PAGE, 7),
            by(address, SYS_ptrace, 0, 0, 0),                               by(address, SYS_process_vm_readv, 1, 0, 0),
        };
        for (unsigned long index = 0; index < sizeof answers / sizeof *answers; index++)
            if (answers[index] != -EXDEV)
                return 100 * (int)(address - page) / HERE + 10 + (int)index;
    }
    return 0;
}

// By libc's syscall: the new mask counts, although the old one can be told to nobody.
static int masks(void) {
    sigset_t all;
    sigfillset(&all);
    errno = 0;
    long answer = syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, -1L, 8);
    say(answer == -1 && errno == EFAULT ? "bad address" : "another answer", answer);
    char *text = (char *)memory + 40 * PAGE;
    strcpy(text, "/dev/null");
    int file = open(text, O_WRONLY);
    if (file < 0 || write(file, memory, BYTES) != BYTES || close(file))
        return 1;
    sigset_t now;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 8L);
    say("blocked", sigismember(&now, SIGTERM) + sigismember(&now, SIGSYS) * 2 + sigismember(&now, SIGKILL) * 4);
    raise(SIGSYS);
    sigpending(&now);
    say("pending", sigismember(&now, SIGSYS));
    stack_t none;
    say("no stack", syscall(SYS_sigaltstack, NULL, &none) == 0 && none.ss_flags == SS_DISABLE);
    return 0;
}

static long bare(long number, long a, long b, const void *c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static int forbid(unsigned action) {
    static const int forbidden[] = {SYS_userfaultfd, SYS_seccomp, SYS_process_vm_readv, SYS_process_madvise, SYS_memfd_create};
    struct sock_filter program[16];
    int length = 0;
    program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int call = 0; call < 5; call++) {
        program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forbidden[call], 0, 1);
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {length, program};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    const char *way = words[1];
    unsigned denied = strcmp(words[2], "kill") == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EXDEV;
    unsigned flags = count > 3 ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    memory = malloc(BYTES);
    fill();
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int result = 0;
    if (strcmp(way, "pages") == 0) {
        pthread_t other;
        pthread_barrier_init(&begun, NULL, 2);
        pthread_create(&other, NULL, beside, NULL);
        pthread_barrier_wait(&begun);
        INSTALL(denied, flags, SYS_write, SYS_exit_group);
        say("wrong", go_on(0));
        turn = 1;
        while (turn == 1)
            ;
        say("beside", turn);
        say("wrong", go_on(2));
    } else if (strcmp(way, "heap") == 0) {
        INSTALL(denied, flags, SYS_write, SYS_exit_group, SYS_mmap, SYS_munmap, SYS_mremap, SYS_brk, SYS_mprotect, SYS_madvise,
                SYS_futex, SYS_clone, SYS_clone3, SYS_rseq, SYS_set_robust_list, SYS_rt_sigprocmask, SYS_exit, SYS_gettid,
                SYS_rt_sigaction, SYS_sched_getaffinity, SYS_prlimit64, SYS_getrandom);
        say("wrong", go_on(0));
        result = heap();
    } else if (strcmp(way, "calls") == 0) {
        int ends[2];
        if (pipe(ends))
            return 7;
        INSTALL(denied, flags, SYS_read, SYS_write, SYS_exit_group);
        say("wrong", go_on(0));
        result = calls(ends);
    } else if (strcmp(way, "fork") == 0) {
        INSTALL(denied, flags, SYS_write, SYS_exit_group, SYS_clone, SYS_clone3, SYS_wait4, SYS_set_robust_list, SYS_rseq, SYS_futex,
                SYS_rt_sigprocmask, SYS_gettid, SYS_getpid);
        say("wrong", go_on(0));
        int child = fork(), status;
        if (child == 0) {
            say("child wrong", go_on(1));
            _exit(5);
        }
        if (waitpid(child, &status, 0) != child)
            return 6;
        say("child", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        say("wrong", go_on(1));
    } else if (strcmp(way, "trap") == 0) {
        struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
        sigaction(SIGSYS, &action, NULL);
        INSTALL(SECCOMP_RET_TRAP, flags, SYS_write, SYS_exit_group, SYS_rt_sigreturn, SYS_read);
        say("wrong", go_on(0));
        say("parent", getppid());
        say("wrong", go_on(1));
        char *text = (char *)memory + 40 * PAGE;
        strcpy(text, "/dev/null");
        say("wrong", go_on(2) != 0 ? 0 : 1);
        say("opened", open(text, O_RDONLY));
        say(errno == ENOSYS ? "no such call" : "another error", 0);
    } else if (strcmp(way, "mode") == 0) {
        say("before", prctl(PR_GET_SECCOMP));
        INSTALL(denied, flags, SYS_write, SYS_exit_group, SYS_prctl);
        say("after", prctl(PR_GET_SECCOMP));
        say("wrong", go_on(0));
    } else if (strcmp(way, "twice") == 0) {
        INSTALL(denied, flags, SYS_write, SYS_exit_group, SYS_prctl, SYS_seccomp, SYS_getppid);
        say("wrong", go_on(0));
        say("parent", getppid() > 0);
        INSTALL(SECCOMP_RET_ERRNO | EXDEV, flags, SYS_write, SYS_exit_group);
        say("wrong", go_on(1));
        say("parent", getppid() > 0);
    } else if (strcmp(way, "wrong") == 0) {
        result = wrong();
    } else if (strcmp(way, "strict") == 0) {
        result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        say("strict", result);
        syscall(SYS_exit, 0);
    } else if (strcmp(way, "long") == 0) {
        static struct sock_filter program[4000];
        for (int at = 0; at < 4000; at++)
            program[at] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        struct sock_fprog filter = {4000, program};
        say("long", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    } else if (strcmp(way, "denied") == 0) {
        INSTALL(denied, flags, SYS_write, SYS_exit_group);
        say("wrong", go_on(0));
        say("parent", syscall(SYS_getppid));
    } else if (strcmp(way, "spawn") == 0) {
        int child = forbid(denied) == 0 ? fork() : -1, status;
        if (child == 0) {
            execlp("echo", "echo", "here", NULL);
            _exit(127);
        }
        if (waitpid(child, &status, 0) != child)
            return 6;
        say("child", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        say("wrong", go_on(0));
    } else if (strcmp(way, "exec") == 0) {
        if (forbid(denied) == 0)
            execlp("echo", "echo", "here", NULL);
        return 6;
    } else if (strcmp(way, "masks") == 0) {
        result = masks();
    } else if (strcmp(way, "bare") == 0) {
        static struct sock_filter deny[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog filter = {sizeof deny / sizeof *deny, deny};
        result = (int)bare(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter);
        for (;;)
            go_on(0);
    } else if (strcmp(way, "gate") == 0) {
        INSTALL(SECCOMP_RET_ERRNO | EXDEV, flags, SYS_exit_group, SYS_getpid);
        _exit(gate() == 0 && go_on(0) == 0 ? 3 : 4);
    } else {
        return 2;
    }
    say("result", result);
    syscall(SYS_exit_group, 0);
}
