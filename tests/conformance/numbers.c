// Memory calls by their numbers, through libc's `syscall`.
#include "numbers.h"
