#include "gather.h"
#include "llvm/Transforms/Utils/CodeExtractor.h"

using namespace llvm;

namespace hinterland {

// Iterations whose addresses are handed over together.
static constexpr unsigned batch = 64;

GatherCode emitGather(const Gather &gather, SliceLowering &slices, ScalarEvolution &evolution, DominatorTree &dominators, IRBuilder<> &builder,
                function_ref<void(Value *, Value *, uint64_t)> fetch) {
  BasicBlock *before = builder.GetInsertBlock();
  Function *function = before->getParent();
  LLVMContext &context = function->getContext();
  BasicBlock *place = gather.loop.getLoopPreheader();
  GatherCode code;
  auto block = [&](const Twine &name) { return code.blocks.emplace_back(BasicBlock::Create(context, "hint.gather" + name, function, place)); };
  uint64_t bytes = 0;
  for (const Access *access : gather.accesses) bytes = std::max(bytes, access->bytes);
  unsigned width = gather.accesses.size(), room = batch * width;

  bool nested = &gather.holder != &gather.loop;
  BasicBlock *begin = block(""), *outer = block(".outer"), *outerEnd = block(".next"), *rest = block(".rest"), *last = block(".last");
  BasicBlock *done = BasicBlock::Create(context, "hint.gather.done", function, place);
  builder.CreateBr(begin);
  builder.SetInsertPoint(begin);
  Value *list = code.list = builder.CreateAlloca(ArrayType::get(builder.getPtrTy(), room), nullptr, "hint.list");
  builder.CreateBr(outer);
  builder.SetInsertPoint(outer);
  Type *integer = builder.getInt64Ty();
  Value *one = builder.getInt64(1), *zero = builder.getInt64(0);
  PHINode *iteration = builder.CreatePHI(integer, 2), *count = builder.CreatePHI(integer, 2);
  iteration->addIncoming(gather.from, begin);
  count->addIncoming(zero, begin);

  SliceLowering::Iterations at{{&gather.loop, iteration}};
  PHINode *inside = nullptr, *insideCount = nullptr;
  Value *taken = nullptr;
  PHINode *outerCount = PHINode::Create(integer, 2, "", outerEnd);
  BasicBlock *inner = nullptr;
  Value *listed = count;
  if (nested) {
    inner = block(".inner");
    BasicBlock *enter = block(".enter");
    if (dominators.dominates(gather.holder.getLoopPreheader(), gather.loop.getLoopLatch())) {
      builder.CreateBr(enter);
    } else {
      BranchInst *guard = gather.holder.getLoopGuardBranch();
      Value *condition = builder.CreateFreeze(slices.lower(guard->getCondition(), at, builder));
      // The way to the loop inside is the one that its preheader is on.
      bool whenTrue = dominators.dominates(guard->getSuccessor(0), gather.holder.getHeader());
      builder.CreateCondBr(condition, whenTrue ? enter : outerEnd, whenTrue ? outerEnd : enter);
      outerCount->addIncoming(count, builder.GetInsertBlock());
    }
    builder.SetInsertPoint(enter);
    taken = slices.lower(evolution.getBackedgeTakenCount(&gather.holder), at, builder);
    taken = builder.CreateFreeze(builder.CreateZExtOrTrunc(taken, integer));
    builder.CreateBr(inner);
    builder.SetInsertPoint(inner);
    inside = builder.CreatePHI(integer, 2);
    insideCount = builder.CreatePHI(integer, 2);
    inside->addIncoming(zero, enter);
    insideCount->addIncoming(count, enter);
    at[&gather.holder] = inside;
    listed = insideCount;
  }
  for (const Access *access : gather.accesses) {
    Value *address = slices.lower(access->address, at, builder);
    builder.CreateStore(address, builder.CreateInBoundsGEP(builder.getPtrTy(), list, listed));
    listed = builder.CreateAdd(listed, one, "", true, true);
  }
  // A full list is handed over at once.
  BasicBlock *full = block(".full"), *next = block(".more");
  BasicBlock *written = builder.GetInsertBlock();
  builder.CreateCondBr(builder.CreateICmpEQ(listed, builder.getInt64(room)), full, next);
  builder.SetInsertPoint(full);
  fetch(list, builder.getInt64(room), bytes);
  builder.CreateBr(next);
  builder.SetInsertPoint(next);
  PHINode *kept = builder.CreatePHI(integer, 2);
  kept->addIncoming(listed, written);
  kept->addIncoming(zero, full);
  if (nested) {
    Value *following = builder.CreateAdd(inside, one);
    inside->addIncoming(following, next);
    insideCount->addIncoming(kept, next);
    builder.CreateCondBr(builder.CreateICmpEQ(inside, taken), outerEnd, inner);
  } else {
    builder.CreateBr(outerEnd);
  }
  outerCount->addIncoming(kept, next);

  builder.SetInsertPoint(outerEnd);
  Value *following = builder.CreateAdd(iteration, one, "", true, true);
  iteration->addIncoming(following, outerEnd);
  count->addIncoming(outerCount, outerEnd);
  builder.CreateCondBr(builder.CreateICmpEQ(following, gather.to), rest, outer);
  builder.SetInsertPoint(rest);
  builder.CreateCondBr(builder.CreateIsNotNull(outerCount), last, done);
  builder.SetInsertPoint(last);
  fetch(list, outerCount, bytes);
  builder.CreateBr(done);
  builder.SetInsertPoint(done);
  return code;
}

static constexpr char gatherName[] = "hinterland-gather";

bool isGather(const Function &function) { return function.hasFnAttribute(gatherName); }

void outline(const GatherCode &code) {
  CodeExtractorAnalysisCache cache(*code.list->getFunction());
  CodeExtractor extractor(code.blocks, /*DT=*/nullptr, /*AggregateArgs=*/false, nullptr, nullptr, nullptr, /*AllowVarArgs=*/false, /*AllowAlloca=*/true,
                          nullptr, "hint.gather");
  Function *function = extractor.extractCodeRegion(cache);
  // Every block can be extracted: they have neither landing pads nor addresses that are taken.
  if (!function) report_fatal_error("hinterland: a gather cannot be outlined");
  code.list->moveBefore(function->getEntryBlock().getFirstInsertionPt());
  // The function that the loop is in may have these, and hands them on.
  function->removeFnAttr(Attribute::AlwaysInline);
  function->removeFnAttr(Attribute::InlineHint);
  function->addFnAttr(Attribute::NoInline);
  function->addFnAttr(gatherName);
  function->setDoesNotThrow();
  function->setWillReturn();
  function->setMemoryEffects(MemoryEffects::readOnly() | MemoryEffects::inaccessibleMemOnly());
}

} // namespace hinterland
