// Shows decisions as optimisation remarks: -Rpass=hinterland what was inserted, -Rpass-missed=hinterland what was not, each with its reason.
#pragma once

#include "analysis.h"
#include "keeping.h"

namespace hinterland {

void show(const LoopDecision &decision, llvm::OptimizationRemarkEmitter &remarks);
// What is kept while loops run, and what is not although the plan wants it.
void show(const KeepDecision &decision, llvm::OptimizationRemarkEmitter &remarks);
// What the plan names and is not in this file: another program's, a function that was renamed, a line that has moved.
void showMissing(const Plan &plan, llvm::Module &module, llvm::function_ref<llvm::OptimizationRemarkEmitter &(llvm::Function &)> remarks,
                 llvm::function_ref<llvm::LoopInfo &(llvm::Function &)> loops);
// So many loops have become part of the ones before them.
void showFused(const llvm::Function &function, size_t loops, llvm::OptimizationRemarkEmitter &remarks);

} // namespace hinterland
