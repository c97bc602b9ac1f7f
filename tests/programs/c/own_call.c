// Makes one system call by the instruction itself: `mask` sets the thread's signal mask, `futex` wakes nobody. Which of both
// instructions the program contains is chosen when it is compiled.

#include <stdio.h>
#include <sys/syscall.h>

static long call(long number, long a, long b, long c, long d) {
    register long fourth __asm__("r10") = d;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return answer;
}

int main(void) {
#ifdef MASK
    unsigned long before = 0;
    long answer = call(SYS_rt_sigprocmask, 0, 0, (long)&before, sizeof before);
#else
    static int word;
    long answer = call(SYS_futex, (long)&word, 1 /* FUTEX_WAKE */, 1, 0);
#endif
    printf("done %ld\n", answer);
    return 0;
}
