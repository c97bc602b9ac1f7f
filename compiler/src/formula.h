// A number that a call's arguments give, as scalar evolution has it in the function that is called: kept apart from that function, whose analyses end
// when it changes, and computed anew for each call from what the caller passes.
#pragma once

#include "llvm/ADT/APInt.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/InstrTypes.h"
#include <optional>
#include <vector>

namespace hinterland {

class Formula {
public:
  explicit Formula(llvm::APInt constant) : bits_(constant.getBitWidth()), constant_(std::move(constant)) {}

  // None: it depends on more than the function's arguments, or is too long.
  static std::optional<Formula> of(const llvm::SCEV *expression);
  // Its value for a call; null: the caller's scalar evolution has none.
  const llvm::SCEV *at(const llvm::CallBase &call, llvm::ScalarEvolution &evolution) const;
  // Null: it depends on arguments.
  const llvm::APInt *constant() const { return kind_ == llvm::scConstant ? &constant_ : nullptr; }
  bool operator==(const Formula &other) const;

private:
  Formula() = default;
  static std::optional<Formula> of(const llvm::SCEV *expression, unsigned &operations);

  llvm::SCEVTypes kind_ = llvm::scConstant;
  unsigned bits_ = 0;
  llvm::APInt constant_;
  unsigned argument_ = 0; // of scUnknown
  std::vector<Formula> operands_;
};

} // namespace hinterland
