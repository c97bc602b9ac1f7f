// Whether what a loop has walked may leave (Mira §4.5, eviction hints; §4.6 for objects that other threads see).
#pragma once

#include "analysis.h"

namespace hinterland {

// What the plan says of an object that a loop accesses: of the place where it is allocated, else of the loop.
std::optional<Eviction> plannedEviction(const llvm::Value *object, const LoopWish &wish, const Plan &plan);

// Fills in `evict`, or why not in `kept`.
void decideEviction(Access &access, const LoopDecision &decision, const LoopWish &wish, const Plan &plan, FunctionAnalyses &analyses);

} // namespace hinterland
