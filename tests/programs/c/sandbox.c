// Runs a program in a sandbox, as container engines make them: `sandbox filters PROGRAM …` forbids seccomp(2), `sandbox
// userfaultfd PROGRAM …` userfaultfd(2). Both fail with EPERM. `sandbox sockets PROGRAM …` ends who calls socket(2).

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3)
        return 2;
    int ends = strcmp(words[1], "sockets") == 0;
    unsigned forbidden = ends ? SYS_socket : strcmp(words[1], "filters") == 0 ? SYS_seccomp : SYS_userfaultfd;
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forbidden, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, ends ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("sandbox");
        return 2;
    }
    execvp(words[2], words + 2);
    perror(words[2]);
    return 127;
}
