/* What a small system call costs at least once a process has a seccomp filter: pairs of read and write of 512 bytes, without a
 * filter, and with one that lets the call through after two instructions. The best of many short runs.
 * cc -O2 -o filter 0011-filter.c && ./filter; hinterland run --local 64M --fault-path inline -- ./filter plain
 * Usage: filter [plain], which leaves the filter out. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static double pair_ns(int from, int to, char *bytes) {
    double best = 1e18;
    for (int round = 0; round < 400; round++) {
        double begin = now();
        for (int call = 0; call < 2000; call++)
            if (read(from, bytes, 512) != 512 || write(to, bytes, 512) != 512) exit(1);
        double took = (now() - begin) / 2000;
        if (took < best) best = took;
    }
    return best;
}

int main(int argc, char **argv) {
    (void)argv;
    static char near[512];
    char *heap = malloc(512);
    int from = open("/dev/zero", O_RDONLY), to = open("/dev/null", O_WRONLY);
    if (!heap || from < 0 || to < 0) return 1;
    printf("static %.0f ns, heap %.0f ns\n", pair_ns(from, to, near), pair_ns(from, to, heap));
    if (argc > 1) return 0;
    /* As a constant answer would be remembered by the kernel, the filter looks at an argument. */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
    printf("with a filter: static %.0f ns, heap %.0f ns\n", pair_ns(from, to, near), pair_ns(from, to, heap));
    return 0;
}
