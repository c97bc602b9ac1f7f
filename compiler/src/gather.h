// Addresses of later iterations, 64 at a time, handed over as one batch (Mira §4.5, data access batching).
//
//     for (i = from; i < to; i++) { list[n++] = address(i); if (n == 64) { fetchv(list, n); n = 0; } }     the loop's own accesses
//     for (i = from; i < to; i++) if (guard(i)) for (j = 0; j <= taken(i); j++) list[n++] = address(i, j)  those of a loop inside
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

// `fetch` is given the list, how many addresses it has, and the bytes at each. The builder stands at the end of what was written.
void emitGather(const Gather &gather, SliceLowering &slices, llvm::ScalarEvolution &evolution, llvm::DominatorTree &dominators,
                llvm::IRBuilder<> &builder, llvm::function_ref<void(llvm::Value *, llvm::Value *, uint64_t)> fetch);

} // namespace hinterland
