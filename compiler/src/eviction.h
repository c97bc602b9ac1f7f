// Whether what a loop has walked may leave (Mira §4.5, eviction hints; §4.6 for objects that other threads see).
#pragma once

#include "analysis.h"

namespace hinterland {

// Fills in `evict`, or why not in `kept`.
void decideEviction(Access &access, const LoopDecision &decision, const LoopWish &wish, const Plan &plan, FunctionAnalyses &analyses);

} // namespace hinterland
