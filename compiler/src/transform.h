// Carries out what was decided for a loop.
//
//     before ──▶ ask ──▶ loop as it was ─────────────────────────────▶ after
//        no table │ nothing far                                         ▲
//                 ▼                                                     │
//            chunk: fetch what comes, one distance ahead; evict ──▶ loop, some iterations ──▶ more? ──▶ end
//
// The hinted version is the same loop cut into chunks of some iterations, so neither version has a hint in its innermost iterations, and
// both are vectorised as ever. Where the loop can be left in the middle of an iteration, the second version keeps all conditions of its own, and chunks come to no end.
#pragma once

#include "analysis.h"
#include "interface.h"

namespace hinterland {

// Changes the function; its analyses are stale afterwards. Blocks whose loops are done with, both versions' and those of the hints, go to `done`.
void hint(const LoopDecision &decision, Interface &interface, FunctionAnalyses &analyses, llvm::SmallPtrSetImpl<llvm::BasicBlock *> &done);

// "function file:line:column"
std::string loopName(const llvm::Loop &loop);

// Whether the loop comes from a hinted one, perhaps of another run: in link-time optimisation the pass sees loops that it has seen.
bool isDone(const llvm::Loop &loop);

} // namespace hinterland
