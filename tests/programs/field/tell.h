/* Prints a call, its answer, and the name of its error. */
#pragma once
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TELL(call)                                                                                    \
    do {                                                                                              \
        errno = 0;                                                                                    \
        long answer = (long)(call);                                                                   \
        printf("%s: %ld %s\n", #call, answer, answer < 0 ? strerrorname_np(errno) : "");              \
        fflush(stdout);                                                                               \
    } while (0)
