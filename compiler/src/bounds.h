// The least and the greatest value of an expression in all iterations of a function's loops, or of those inside one.
#pragma once

#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"

namespace hinterland {

class Bounds {
public:
  // `inside`: of the loops inside this one alone; null: of all.
  explicit Bounds(llvm::ScalarEvolution &evolution, const llvm::Loop *inside = nullptr) : evolution_(evolution), inside_(inside) {}

  // An expression that none of these loops changes; null: it cannot be told.
  const llvm::SCEV *of(const llvm::SCEV *expression, bool greatest);

private:
  bool isFixed(const llvm::SCEV *expression) const;
  const llvm::SCEV *extreme(const llvm::SCEV *expression, bool greatest);
  const llvm::SCEV *extreme(const llvm::SCEVAddRecExpr &recurrence, bool greatest);

  llvm::ScalarEvolution &evolution_;
  const llvm::Loop *inside_;
  unsigned steps_ = 0;
};

} // namespace hinterland
