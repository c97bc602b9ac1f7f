#include "formula.h"

using namespace llvm;

namespace hinterland {

// Operations of a formula: a caller computes it for each later iteration.
static constexpr unsigned formulaMax = 32;

std::optional<Formula> Formula::of(const SCEV *expression) {
  unsigned operations = 0;
  return of(expression, operations);
}

std::optional<Formula> Formula::of(const SCEV *expression, unsigned &operations) {
  if (++operations > formulaMax || !expression->getType()->isIntegerTy()) return std::nullopt;
  if (auto *constant = dyn_cast<SCEVConstant>(expression)) return Formula(constant->getAPInt());
  Formula formula;
  formula.kind_ = expression->getSCEVType();
  formula.bits_ = expression->getType()->getIntegerBitWidth();
  switch (formula.kind_) {
  case scUnknown:
  case scPtrToInt: {
    bool isNumber = formula.kind_ == scUnknown;
    auto *value = dyn_cast<SCEVUnknown>(isNumber ? expression : cast<SCEVPtrToIntExpr>(expression)->getOperand());
    auto *argument = value ? dyn_cast<Argument>(value->getValue()) : nullptr;
    if (!argument) return std::nullopt;
    formula.argument_ = argument->getArgNo();
    return formula;
  }
  case scAddExpr:
  case scMulExpr:
  case scUDivExpr:
  case scZeroExtend:
  case scSignExtend:
  case scTruncate:
  case scSMaxExpr:
  case scUMaxExpr:
  case scSMinExpr:
  case scUMinExpr: break;
  default: return std::nullopt;
  }
  for (const SCEV *operand : expression->operands()) {
    auto part = of(operand, operations);
    if (!part) return std::nullopt;
    formula.operands_.push_back(std::move(*part));
  }
  return formula;
}

const SCEV *Formula::at(const CallBase &call, ScalarEvolution &evolution) const {
  Type *type = IntegerType::get(evolution.getContext(), bits_);
  SmallVector<const SCEV *, 4> values;
  for (const Formula &operand : operands_) {
    values.push_back(operand.at(call, evolution));
    if (!values.back()) return nullptr;
  }
  switch (kind_) {
  case scConstant: return evolution.getConstant(constant_);
  case scUnknown: return evolution.getSCEV(call.getArgOperand(argument_));
  case scPtrToInt: {
    const SCEV *number = evolution.getPtrToIntExpr(evolution.getSCEV(call.getArgOperand(argument_)), type);
    return isa<SCEVCouldNotCompute>(number) ? nullptr : number;
  }
  case scAddExpr: return evolution.getAddExpr(values);
  case scMulExpr: return evolution.getMulExpr(values);
  case scUDivExpr: return evolution.getUDivExpr(values[0], values[1]);
  case scZeroExtend: return evolution.getZeroExtendExpr(values[0], type);
  case scSignExtend: return evolution.getSignExtendExpr(values[0], type);
  case scTruncate: return evolution.getTruncateExpr(values[0], type);
  default: return evolution.getMinMaxExpr(kind_, values);
  }
}

bool Formula::operator==(const Formula &other) const {
  if (kind_ != other.kind_ || bits_ != other.bits_) return false;
  return kind_ == scConstant ? constant_ == other.constant_ : argument_ == other.argument_ && operands_ == other.operands_;
}

} // namespace hinterland
