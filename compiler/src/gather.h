// Addresses of later iterations, 64 at a time, handed over as one batch (Mira §4.5, data access batching).
//
//     for (i = from; i < to; i++) { list[n++] = address(i); if (n == 64) { fetchv(list, n); n = 0; } }     the loop's own accesses
//     for (i = from; i < to; i++) if (guard(i)) for (j = 0; j <= taken(i); j++) list[n++] = address(i, j)  those of a loop inside
//
// It becomes a function of its own once all else is written: the list would lie in the frame of each call of the function that has the loop,
// also where nothing is far, and of recursion that is deep.
//
// The loop inside ends only where its iterations do: so all of those up to `taken` are executed whole, and what they load may be loaded.
#pragma once

#include "analysis.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace hinterland {

struct Gather {
  llvm::Loop &loop;
  llvm::Loop &holder; // the loop itself, or one directly inside it
  llvm::ArrayRef<const Access *> accesses;
  llvm::Value *from, *to; // iterations of the loop; at least one
};

// What was written: a region of its own.
struct GatherCode {
  llvm::AllocaInst *list;
  llvm::SmallVector<llvm::BasicBlock *, 16> blocks; // the first is where it begins
};

// `fetch` is given the list, how many addresses it has, and the bytes at each. The builder stands at the end of what was written.
GatherCode emitGather(const Gather &gather, SliceLowering &slices, llvm::ScalarEvolution &evolution, llvm::DominatorTree &dominators,
                llvm::IRBuilder<> &builder, llvm::function_ref<void(llvm::Value *, llvm::Value *, uint64_t)> fetch);

// Makes it a function that is called. The function is to be whole.
void outline(const GatherCode &code);

// Whether a function is one of these.
bool isGather(const llvm::Function &function);

} // namespace hinterland
