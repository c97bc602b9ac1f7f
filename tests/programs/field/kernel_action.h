/* What rt_sigaction(2) takes of x86-64, which libc has under no name. */
#pragma once

struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};
