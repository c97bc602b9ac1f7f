// Memory calls by their numbers, by the `syscall` instruction itself.
#define INSTRUCTION
#include "numbers.h"
