#include "bounds.h"

using namespace llvm;

namespace hinterland {

// Steps to find an expression's bounds.
static constexpr unsigned stepsMax = 64;

namespace {

// Expressions that have the same value where a loop is entered, and give no range of 2^32 elements where it is not: a count that is not below 0
// there is the greater one of itself and 0.
class Entered : public SCEVRewriteVisitor<Entered> {
public:
  Entered(ScalarEvolution &evolution, const Loop &loop) : SCEVRewriteVisitor(evolution), loop_(loop) {}

  const SCEV *visitZeroExtendExpr(const SCEVZeroExtendExpr *expression) {
    const SCEV *number = visit(expression->getOperand()), *zero = SE.getZero(number->getType());
    if (SE.isLoopEntryGuardedByCond(&loop_, ICmpInst::ICMP_SGE, number, zero)) number = SE.getSMaxExpr(number, zero);
    return SE.getZeroExtendExpr(number, expression->getType());
  }
  // Iterations less one in a wider type: -1 where it is not entered.
  const SCEV *widened(const SCEV *taken, Type *type) {
    if (SE.getTypeSizeInBits(taken->getType()) >= SE.getTypeSizeInBits(type)) return visit(SE.getTruncateOrNoop(taken, type));
    const SCEV *all = SE.getAddExpr(taken, SE.getOne(taken->getType()));
    if (!SE.isLoopEntryGuardedByCond(&loop_, ICmpInst::ICMP_NE, all, SE.getZero(all->getType()))) return visit(SE.getZeroExtendExpr(taken, type));
    return SE.getMinusSCEV(visit(SE.getZeroExtendExpr(all, type)), SE.getOne(type));
  }

private:
  const Loop &loop_;
};

} // namespace

const SCEV *Bounds::of(const SCEV *expression, bool greatest) {
  steps_ = 0;
  return extreme(expression, greatest);
}

bool Bounds::isFixed(const SCEV *expression) const {
  return inside_ ? evolution_.isLoopInvariant(expression, inside_) : !evolution_.containsAddRecurrence(expression);
}

const SCEV *Bounds::extreme(const SCEV *expression, bool greatest) {
  if (++steps_ > stepsMax) return nullptr;
  if (isFixed(expression)) return expression;
  if (auto *recurrence = dyn_cast<SCEVAddRecExpr>(expression)) return extreme(*recurrence, greatest);
  SmallVector<const SCEV *, 4> parts;
  auto bounded = [&](ArrayRef<const SCEV *> operands, bool greatest) {
    for (const SCEV *operand : operands) parts.push_back(extreme(operand, greatest));
    return !is_contained(parts, nullptr);
  };
  switch (expression->getSCEVType()) {
  case scMulExpr: {
    auto *factor = dyn_cast<SCEVConstant>(expression->operands()[0]);
    if (!factor || expression->operands().size() != 2 || !bounded(expression->operands().drop_front(), greatest != factor->getAPInt().isNegative())) return nullptr;
    return evolution_.getMulExpr(factor, parts[0]);
  }
  case scAddExpr: return bounded(expression->operands(), greatest) ? evolution_.getAddExpr(parts) : nullptr;
  case scZeroExtend: return bounded(expression->operands(), greatest) ? evolution_.getZeroExtendExpr(parts[0], expression->getType()) : nullptr;
  case scSignExtend: return bounded(expression->operands(), greatest) ? evolution_.getSignExtendExpr(parts[0], expression->getType()) : nullptr;
  case scSMaxExpr:
  case scUMaxExpr:
  case scSMinExpr:
  case scUMinExpr: return bounded(expression->operands(), greatest) ? evolution_.getMinMaxExpr(expression->getSCEVType(), parts) : nullptr;
  default: return nullptr;
  }
}

// What it begins or ends with.
const SCEV *Bounds::extreme(const SCEVAddRecExpr &recurrence, bool greatest) {
  const SCEV *taken = evolution_.getBackedgeTakenCount(recurrence.getLoop());
  if (!recurrence.isAffine() || isa<SCEVCouldNotCompute>(taken)) return nullptr;
  const SCEV *step = recurrence.getStepRecurrence(evolution_), *start = extreme(recurrence.getStart(), greatest);
  taken = extreme(taken, true);
  if (!start || !taken || !isFixed(step)) return nullptr;
  Entered entered(evolution_, *recurrence.getLoop());
  start = entered.visit(start);
  const SCEV *last = evolution_.getAddExpr(start, evolution_.getMulExpr(step, entered.widened(taken, step->getType())));
  if (evolution_.isKnownNonNegative(step)) return greatest ? last : start;
  if (evolution_.isKnownNonPositive(step)) return greatest ? start : last;
  return greatest ? evolution_.getSMaxExpr(start, last) : evolution_.getSMinExpr(start, last);
}

} // namespace hinterland
