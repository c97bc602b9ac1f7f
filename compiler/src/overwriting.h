// Whether a loop overwrites what it walks, so that it need not be fetched (hinterland_overwrite): a promise, which must be proven.
#pragma once

#include "analysis.h"

namespace hinterland {

// Fills in `overwrites`, or why not in `read`.
void decideOverwriting(Access &access, llvm::Loop &loop, FunctionAnalyses &analyses);

} // namespace hinterland
