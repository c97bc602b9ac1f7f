// Memory calls by the `syscall` instruction itself: what `numbers.c` asks of libc's `syscall`.
#define INSTRUCTION
#include "numbers.c"
