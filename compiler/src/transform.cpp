#include "transform.h"
#include "gather.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Analysis/MemoryBuiltins.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

using namespace llvm;

namespace hinterland {

// Bytes of a nest's rows in a chunk.
static constexpr int64_t rowBytes = 4 * page;
// A walk of fewer bytes is not asked for.
static constexpr int64_t worthBytes = 16 * page;
// Bytes of an array whose size is not known.
static constexpr int64_t unknownBytes = int64_t(1) << 26;
// Chunks before the runtime is asked again: twice as many each time.
static constexpr int64_t firstChunks = 4;
// Addresses that are gathered ahead before it has learnt the loop's pace.
static constexpr int64_t firstAddresses = 512;
// Distances multiply with leads and steps; what is further than so many iterations is not fetched in time for anything.
static constexpr int64_t furthestAhead = 1 << 24;
// Of a longer range for some iterations the beginning is fetched, or nothing where it may come from indices that are out of order.
static constexpr int64_t rangeMax = int64_t(1) << 26;

// Metadata of the loops that are written here, of both versions, and of those inside.
static constexpr char doneName[] = "hinterland.done";

bool isDone(const Loop &loop) { return getBooleanLoopAttribute(&loop, doneName); }

// Says so of a loop, at the branch that leads back to its beginning.
static void markDone(Instruction &branch) {
  LLVMContext &context = branch.getContext();
  auto *done = MDNode::get(context, MDString::get(context, doneName));
  branch.setMetadata(LLVMContext::MD_loop, makePostTransformationMetadata(context, branch.getMetadata(LLVMContext::MD_loop), {}, {done}));
}

std::string loopName(const Loop &loop) {
  const Function &function = *loop.getHeader()->getParent();
  DebugLoc start = loop.getStartLoc();
  if (!start) return (function.getName() + " ?:0:0").str();
  const DISubprogram *program = start->getScope()->getSubprogram();
  return (program->getName() + " " + program->getFilename() + ":" + Twine(start.getLine()) + ":" + Twine(start.getCol())).str();
}

namespace {

class Transform {
public:
  Transform(const LoopDecision &decision, Interface &interface, FunctionAnalyses &analyses)
      : decision_(decision), loop_(*decision.loop), interface_(interface), analyses_(analyses), context_(loop_.getHeader()->getContext()),
        builder_(context_) {}

  void counted();
  void chain();

private:
  void versions();
  void ask();
  Value *askAll(Value *from, Value *count, const SliceLowering::Current &current);
  Value *search(Value *count, const SliceLowering::Current &current);
  std::pair<Value *, Value *> walked(const Access &access, Value *from, Value *count, const SliceLowering::Current &current);
  SliceLowering::Current entering();
  Value *iterationsPerChunk();
  void chunks();
  void fetchAhead();
  void fetchAhead(ArrayRef<const Access *> group, unsigned lead);
  void fetchRange(const Access &access, Value *from, Value *to);
  void fetchRanges(const Access &access, Value *from, Value *to);
  Value *position(const Access &access, Value *iteration, bool end, const SliceLowering::Current *current = nullptr);
  void evictBehind();
  void overwriteAhead();
  Value *endOfPage(const PagedLoad &load);
  void limitIterations(Value *limit);
  void leave();
  void leaveInTheMiddle(BasicBlock *exiting, function_ref<Value *()> iterations);
  void join(BasicBlock *plain, BasicBlock *second, BasicBlock &exit);

  Value *difference(Value *end, Value *start) {
    return builder_.CreateSub(builder_.CreatePtrToInt(end, builder_.getInt64Ty()), builder_.CreatePtrToInt(start, builder_.getInt64Ty()));
  }
  // Before the runtime is asked again.
  Value *firstIterations() { return builder_.CreateMul(perChunk_, number(firstChunks)); }
  // Of so many iterations since it was asked: none where it has said that they need no hints.
  Value *withHints(Value *iterations) { return builder_.CreateSelect(builder_.CreateIsNull(distance_), number(0), iterations); }
  Value *number(int64_t value) { return builder_.getInt64(value); }
  BasicBlock *block(const Twine &name) { return BasicBlock::Create(context_, "hint." + name, function(), plainPreheader_); }
  Function *function() { return loop_.getHeader()->getParent(); }
  template <typename T> T *hinted(T *original) { return cast<T>(static_cast<Value *>(map_[original])); }
  void hintCall(Call which, ArrayRef<Value *> arguments) {
    SmallVector<Value *, 5> all{state_};
    all.append(arguments.begin(), arguments.end());
    interface_.call(builder_, table_, which, all);
  }

  const LoopDecision &decision_;
  Loop &loop_;
  Interface &interface_;
  FunctionAnalyses &analyses_;
  LLVMContext &context_;
  IRBuilder<> builder_;
  ValueToValueMapTy map_;
  SmallVector<BasicBlock *, 16> blocks_;
  BasicBlock *before_ = nullptr, *ask_ = nullptr, *decide_ = nullptr, *plainPreheader_ = nullptr, *hintedPreheader_ = nullptr;
  BasicBlock *chunk_ = nullptr, *chunkEnd_ = nullptr, *innerPreheader_ = nullptr;
  Value *table_ = nullptr, *state_ = nullptr, *answer_ = nullptr, *total_ = nullptr, *perChunk_ = nullptr;
  PHINode *first_ = nullptr; // the chunk's first iteration
  PHINode *ofChunk_ = nullptr; // iterations of it that are done
  PHINode *distance_ = nullptr, *asked_ = nullptr, *askAgain_ = nullptr; // how far ahead; when that was asked, and when it will be again
  Value *length_ = nullptr;  // and how many it has
  SliceLowering::Current current_, next_; // what the chunk begins with, and the next one
  std::optional<SliceLowering> slices_;
  SmallVector<GatherCode, 2> gathers_;
  SmallVector<std::pair<PHINode *, Value *>, 4> behind_; // values that the next chunk begins with
};

// The plain loop with a second version beside it, which nothing enters yet.
void Transform::versions() {
  for (Loop *loop : loop_.getLoopsInPreorder())
    if (BasicBlock *latch = loop->getLoopLatch()) markDone(*latch->getTerminator());
  before_ = loop_.getLoopPreheader();
  ask_ = SplitBlock(before_, before_->getTerminator(), &analyses_.dominators, &analyses_.loops, nullptr, "hint.ask");
  decide_ = SplitBlock(ask_, ask_->getTerminator(), &analyses_.dominators, &analyses_.loops, nullptr, "hint.decide");
  plainPreheader_ = SplitBlock(decide_, decide_->getTerminator(), &analyses_.dominators, &analyses_.loops, nullptr, "hint.plain");
  cloneLoopWithPreheader(plainPreheader_, decide_, &loop_, map_, ".hinted", &analyses_.loops, &analyses_.dominators, blocks_);
  remapInstructionsInBlocks(blocks_, map_);
  hintedPreheader_ = hinted(plainPreheader_);
  builder_.SetInsertPoint(before_->getTerminator());
  builder_.SetCurrentDebugLocation(loop_.getStartLoc());
  table_ = interface_.table(builder_);
  auto *unlikely = MDBuilder(context_).createBranchWeights(1, 64);
  builder_.CreateCondBr(builder_.CreateIsNotNull(table_), ask_, plainPreheader_, unlikely);
  before_->getTerminator()->eraseFromParent();
  // What does not change in the loop is computed in a block of its own, ahead of all questions.
  slices_.emplace(loop_, analyses_.evolution, analyses_.loops, *ask_->getTerminator());
  state_ = interface_.loop(loopName(loop_), decision_.steps && !decision_.evictionIsWanted);
}

// How far ahead, by what the runtime knows of the arrays; 0: as it was.
void Transform::ask() {
  builder_.SetInsertPoint(decide_->getTerminator());
  total_ = builder_.CreateZExtOrTrunc(slices_->lower(decision_.taken, SliceLowering::Iterations(), builder_), builder_.getInt64Ty());
  // Freeze: conditions depend on it that the loop, which may be left by a call that does not return, need not come to.
  total_ = builder_.CreateFreeze(total_);
  // Nor need one that is left come to where it is counted; what is there for all iterations is so for as many as there may be.
  APInt most = analyses_.evolution.getUnsignedRangeMax(decision_.taken);
  if (decision_.isLeft && !most.isAllOnes()) total_ = builder_.CreateBinaryIntrinsic(Intrinsic::umin, total_, builder_.getInt(most.zextOrTrunc(64)));
  total_ = builder_.CreateAdd(total_, number(1), "iterations");
  // Enough of them, and so few that nothing here overflows.
  int64_t least = 256;
  for (const Access &access : decision_.accesses)
    if (access.pattern == Pattern::Sequential || access.pattern == Pattern::Strided) least = std::min(least, worthBytes / std::abs(access.step));
    else if (access.pattern == Pattern::Nest) least = std::min<int64_t>(least, 16);
  least = std::max<int64_t>(least, 2);
  Value *worth = builder_.CreateICmpULT(builder_.CreateSub(total_, number(least)), number(int64_t(1) << 40));
  if (decision_.endsEarly) worth = builder_.CreateAnd(worth, interface_.has(builder_, table_, Call::LoopSearch));
  BasicBlock *begins = block("begin"), *starts = block("start");
  builder_.CreateCondBr(worth, begins, plainPreheader_);
  decide_->getTerminator()->eraseFromParent();

  builder_.SetInsertPoint(begins);
  SliceLowering::Current current = entering();
  Value *isFar;
  if (decision_.endsEarly) {
    perChunk_ = iterationsPerChunk();
    isFar = search(builder_.CreateBinaryIntrinsic(Intrinsic::umin, firstIterations(), total_), current);
  } else {
    answer_ = askAll(number(0), total_, current);
    isFar = builder_.CreateIsNotNull(answer_);
  }
  builder_.CreateCondBr(isFar, starts, plainPreheader_);
  builder_.SetInsertPoint(starts);
  // An iteration whose loop inside gathers has many addresses, which no answer has counted yet.
  for (const Access &access : decision_.accesses) {
    if (access.pattern != Pattern::Gather || access.holder == &loop_) continue;
    Value *taken = slices_->lower(analyses_.evolution.getBackedgeTakenCount(access.holder), {{&loop_, number(1)}}, builder_);
    taken = builder_.CreateBinaryIntrinsic(Intrinsic::umin, builder_.CreateZExtOrTrunc(taken, builder_.getInt64Ty()), number(firstAddresses - 1));
    Value *few = builder_.CreateUDiv(number(firstAddresses), builder_.CreateAdd(builder_.CreateFreeze(taken), number(1)));
    answer_ = builder_.CreateBinaryIntrinsic(Intrinsic::umin, answer_, few);
  }
  builder_.CreateBr(hintedPreheader_);
}

// What the loop begins with.
SliceLowering::Current Transform::entering() {
  SliceLowering::Current current;
  for (PHINode &phi : loop_.getHeader()->phis()) current[&phi] = phi.getIncomingValueForBlock(loop_.getLoopPreheader());
  return current;
}

// How far ahead, for so many iterations from the one on that is about to begin: the furthest answer of the loop's arrays.
Value *Transform::askAll(Value *from, Value *count, const SliceLowering::Current &current) {
  Value *furthest = number(0);
  for (const Access &access : decision_.accesses) {
    auto [address, length] = walked(access, from, count, current);
    Value *answer = interface_.call(builder_, table_, Call::LoopBegin, {state_, address, length, count});
    furthest = builder_.CreateBinaryIntrinsic(Intrinsic::umax, furthest, answer);
  }
  return builder_.CreateBinaryIntrinsic(Intrinsic::umin, furthest, number(furthestAhead));
}

// Asks for the first iterations of a loop that may end early and, by the same question, for all; says whether something is far. Where only what comes
// later is, it fetches nothing until it has come so far that it asks again.
Value *Transform::search(Value *count, const SliceLowering::Current &current) {
  Value *furthest = number(0), *any = number(0);
  for (const Access &access : decision_.accesses) {
    auto [address, length] = walked(access, number(0), count, current);
    auto [all, allLength] = walked(access, number(0), total_, current);
    Value *answer = interface_.call(builder_, table_, Call::LoopSearch, {state_, address, length, count, all, allLength, total_});
    any = builder_.CreateOr(any, answer);
    Value *ahead = builder_.CreateSelect(builder_.CreateICmpEQ(answer, number(later)), number(0), answer);
    furthest = builder_.CreateBinaryIntrinsic(Intrinsic::umax, furthest, ahead);
  }
  answer_ = builder_.CreateBinaryIntrinsic(Intrinsic::umin, furthest, number(furthestAhead));
  return builder_.CreateIsNotNull(any);
}

// What those iterations walk of one array: from where on, and how many bytes.
std::pair<Value *, Value *> Transform::walked(const Access &access, Value *from, Value *count, const SliceLowering::Current &current) {
  Value *address, *length;
  if (access.pattern == Pattern::Gather) {
    const SCEV *base = analyses_.evolution.getPointerBase(access.address);
    if (!analyses_.evolution.isLoopInvariant(base, &loop_)) {
      // What is pointed to may be anywhere.
      address = ConstantPointerNull::get(builder_.getPtrTy());
      length = number(0);
    } else {
      address = slices_->lower(base, SliceLowering::Iterations(), builder_);
      uint64_t size = 0;
      ObjectSizeOpts options;
      bool known = getObjectSize(access.object, size, function()->getDataLayout(), &analyses_.library, options);
      // Where the array ends is not known; the beginning stands for all of it.
      length = number(known ? size : unknownBytes);
    }
  } else {
    Value *last = builder_.CreateSub(builder_.CreateAdd(from, count), number(1));
    bool down = access.step < 0;
    // Of both ends the one at `from` is that of the iteration which is about to begin.
    address = down ? position(access, last, false) : position(access, from, false, &current);
    Value *end = down ? position(access, from, true, &current) : position(access, last, true);
    length = difference(end, address);
    length = builder_.CreateBinaryIntrinsic(Intrinsic::smax, length, number(0));
  }
  return {address, length};
}

// The lowest byte of an iteration's part of a walk, or the end of it. `current`: of the iteration that is about to begin, else one that is ahead of it.
Value *Transform::position(const Access &access, Value *iteration, bool end, const SliceLowering::Current *current) {
  SliceLowering::Iterations of{{&loop_, iteration}};
  of.current = current;
  SliceLowering::Iterations at = of;
  for (const Loop *inside = access.holder; inside != &loop_; inside = inside->getParentLoop())
    at[inside] = end ? slices_->lower(analyses_.evolution.getBackedgeTakenCount(inside), of, builder_) : number(0);
  Value *address = slices_->lower(end && access.end ? access.end : access.address, at, builder_);
  return end && !access.end ? builder_.CreatePtrAdd(address, number(access.bytes)) : address;
}

Value *Transform::iterationsPerChunk() {
  Value *rows = nullptr;
  for (const Access &access : decision_.accesses) {
    if (access.pattern != Pattern::Nest) continue;
    // The rows of a nest are as long as the first one, or as the step between them.
    Value *start = position(access, number(1), false), *end = position(access, number(1), true);
    Value *row = builder_.CreateFreeze(difference(end, start)); // it is divided by
    row = builder_.CreateBinaryIntrinsic(Intrinsic::smax, row, number(64));
    rows = rows ? builder_.CreateBinaryIntrinsic(Intrinsic::umax, rows, row) : row;
  }
  Value *iterations = number(hinterland::iterationsPerChunk(decision_));
  if (rows) {
    Value *fitting = builder_.CreateBinaryIntrinsic(Intrinsic::umax, builder_.CreateUDiv(number(rowBytes), rows), number(1));
    iterations = builder_.CreateBinaryIntrinsic(Intrinsic::umin, iterations, fitting);
  }
  return iterations;
}

// The outer loop over chunks, around the second version.
void Transform::chunks() {
  builder_.SetInsertPoint(hintedPreheader_->getTerminator());
  if (!perChunk_) perChunk_ = iterationsPerChunk();
  Value *soon = firstIterations();
  chunk_ = block("chunk");
  innerPreheader_ = block("some");
  chunkEnd_ = block("chunk.end");
  builder_.CreateBr(chunk_);
  hintedPreheader_->getTerminator()->eraseFromParent();

  builder_.SetInsertPoint(chunk_);
  first_ = builder_.CreatePHI(builder_.getInt64Ty(), 2, "first");
  first_->addIncoming(number(0), hintedPreheader_);
  distance_ = builder_.CreatePHI(builder_.getInt64Ty(), 2, "distance");
  distance_->addIncoming(answer_, hintedPreheader_);
  asked_ = builder_.CreatePHI(builder_.getInt64Ty(), 2, "asked.at");
  asked_->addIncoming(number(0), hintedPreheader_);
  askAgain_ = builder_.CreatePHI(builder_.getInt64Ty(), 2, "ask.at");
  askAgain_->addIncoming(soon, hintedPreheader_);
  // What one iteration hands to the next is handed from chunk to chunk.
  BasicBlock *header = hinted(loop_.getHeader()), *latch = hinted(loop_.getLoopLatch());
  for (PHINode &original : loop_.getHeader()->phis()) {
    PHINode &phi = *hinted(&original), *carried = builder_.CreatePHI(phi.getType(), 2, phi.getName());
    carried->addIncoming(phi.getIncomingValueForBlock(hintedPreheader_), hintedPreheader_);
    Value *next = phi.getIncomingValueForBlock(latch);
    behind_.push_back({carried, next});
    current_[&original] = carried;
    next_[&original] = next;
    phi.setIncomingValueForBlock(hintedPreheader_, carried);
    phi.replaceIncomingBlockWith(hintedPreheader_, innerPreheader_);
  }
  length_ = builder_.CreateBinaryIntrinsic(Intrinsic::umin, perChunk_, builder_.CreateSub(total_, first_));
  fetchAhead();
  evictBehind();
  overwriteAhead();
  builder_.CreateBr(innerPreheader_);
  builder_.SetInsertPoint(innerPreheader_);
  builder_.CreateBr(header);
  limitIterations(length_);
}

// Accesses with one lead are asked for together, apart from those whose indices are read no further than a page.
void Transform::fetchAhead() {
  for (unsigned lead = 4; lead > 0; lead--)
    for (bool isPaged : {false, true}) {
      SmallVector<const Access *, 8> group;
      for (const Access &access : decision_.accesses)
        if (access.lead == lead && access.paged.empty() != isPaged && !access.overwrites) group.push_back(&access);
      if (!group.empty()) fetchAhead(group, lead);
    }
}

// A group has a cursor: up to which iteration it has been asked for.
void Transform::fetchAhead(ArrayRef<const Access *> group, unsigned lead) {
  PHINode *asked = PHINode::Create(builder_.getInt64Ty(), 2, "asked", chunk_->begin());
  asked->addIncoming(number(0), hintedPreheader_);
  // The first iteration comes too soon for a fetch; and what it is handed, slices would read where the one before has been, and perhaps freed it.
  Value *cursor = builder_.CreateBinaryIntrinsic(Intrinsic::umax, asked, builder_.CreateAdd(first_, number(1)));
  Value *ahead = builder_.CreateAdd(builder_.CreateMul(distance_, number(lead)), perChunk_);
  Value *until = builder_.CreateBinaryIntrinsic(Intrinsic::umin, builder_.CreateAdd(first_, ahead), total_);
  for (const Access *access : group)
    for (const PagedLoad &load : access->paged) until = builder_.CreateBinaryIntrinsic(Intrinsic::umin, until, endOfPage(load));
  // No distance: hints are not worth it for now.
  Value *more = builder_.CreateAnd(builder_.CreateICmpULT(cursor, until), builder_.CreateIsNotNull(distance_));
  behind_.push_back({asked, until});
  BasicBlock *fetch = block("fetch"), *done = block("fetched");
  builder_.CreateCondBr(more, fetch, done);
  builder_.SetInsertPoint(fetch);
  SmallMapVector<Loop *, SmallVector<const Access *, 4>, 4> gathers; // in the program's order: objects are the same in each build
  for (const Access *access : group)
    if (access->pattern == Pattern::Gather) gathers[access->holder].push_back(access);
    else if (access->pattern == Pattern::Nest) fetchRanges(*access, cursor, until);
    else fetchRange(*access, cursor, until);
  for (auto &[holder, accesses] : gathers)
    gathers_.push_back(emitGather({loop_, *holder, accesses, cursor, until}, *slices_, analyses_.evolution, analyses_.dominators, builder_,
                                  [&](Value *addresses, Value *count, uint64_t bytes) { hintCall(Call::LoopFetchv, {addresses, count, number(bytes)}); }));
  builder_.CreateBr(done);
  builder_.SetInsertPoint(done);
}

// The iteration up to which an index is on the page that the iteration before this chunk has read it from; 0: there was none.
Value *Transform::endOfPage(const PagedLoad &load) {
  Value *before = builder_.CreateSub(first_, number(1));
  Value *address = builder_.CreatePtrToInt(slices_->lower(load.address, {{&loop_, before}}, builder_), builder_.getInt64Ty());
  Value *offset = builder_.CreateAnd(address, number(page - 1)), *last = number(page - int64_t(load.bytes));
  Value *room = load.step > 0 ? builder_.CreateBinaryIntrinsic(Intrinsic::usub_sat, last, offset) : offset;
  Value *until = builder_.CreateAdd(first_, builder_.CreateUDiv(room, number(std::abs(load.step))));
  return builder_.CreateSelect(builder_.CreateIsNull(first_), number(0), until);
}

// `from` to `to`, the end not included.
void Transform::fetchRange(const Access &access, Value *from, Value *to) {
  Value *last = builder_.CreateSub(to, number(1));
  bool down = access.step < 0;
  Value *start = position(access, down ? last : from, false), *end = position(access, down ? from : last, true);
  hintCall(Call::LoopFetch, {start, difference(end, start)});
}

// The same for a nest, whose ranges need not follow one another: those that do are fetched together.
//
//     for (start = end = 0, i = from; i < to; i++) { if (begin(i) is not just behind end) { fetch(start, end); start = begin(i); } end = end(i); }
void Transform::fetchRanges(const Access &access, Value *from, Value *to) {
  BasicBlock *before = builder_.GetInsertBlock(), *each = block("range"), *apart = block("range.apart"), *next = block("range.next"),
             *rest = block("range.rest");
  Value *none = ConstantPointerNull::get(builder_.getPtrTy());
  builder_.CreateBr(each);
  builder_.SetInsertPoint(each);
  PHINode *iteration = builder_.CreatePHI(builder_.getInt64Ty(), 2), *start = builder_.CreatePHI(builder_.getPtrTy(), 2),
          *end = builder_.CreatePHI(builder_.getPtrTy(), 2);
  iteration->addIncoming(from, before);
  start->addIncoming(none, before);
  end->addIncoming(none, before);
  // Freeze: a condition depends on them.
  Value *begins = builder_.CreateFreeze(position(access, iteration, false)), *ends = builder_.CreateFreeze(position(access, iteration, true));
  // A range of nothing may have a length like -1, or like 2^32 - 1 where its loop counts in 32 bits, and indices out of order any; of a range that is
  // long and is walked the beginning is fetched.
  Value *length = difference(ends, begins);
  if (access.isWalked) ends = builder_.CreateSelect(builder_.CreateICmpSGE(length, number(rangeMax)), builder_.CreatePtrAdd(begins, number(rangeMax - 1)), ends);
  ends = builder_.CreateSelect(builder_.CreateICmpULT(difference(ends, begins), number(rangeMax)), ends, begins);
  Value *follows = builder_.CreateAnd(builder_.CreateICmpULE(difference(begins, end), number(page)),
                                      builder_.CreateICmpULT(difference(end, start), number(rangeMax)));
  BasicBlock *compared = builder_.GetInsertBlock();
  builder_.CreateCondBr(follows, next, apart);
  builder_.SetInsertPoint(apart);
  hintCall(Call::LoopFetch, {start, difference(end, start)});
  builder_.CreateBr(next);
  builder_.SetInsertPoint(next);
  PHINode *first = builder_.CreatePHI(builder_.getPtrTy(), 2);
  first->addIncoming(start, compared);
  first->addIncoming(begins, apart);
  Value *following = builder_.CreateAdd(iteration, number(1), "", true, true);
  iteration->addIncoming(following, next);
  start->addIncoming(first, next);
  end->addIncoming(ends, next);
  markDone(*builder_.CreateCondBr(builder_.CreateICmpEQ(following, to), rest, each));
  builder_.SetInsertPoint(rest);
  hintCall(Call::LoopFetch, {first, difference(ends, first)});
}

// The pages that the chunk before has left behind. One that it shares with an earlier chunk is among them.
void Transform::evictBehind() {
  for (const Access &access : decision_.accesses) {
    if (access.evict == Eviction::Never) continue;
    PHINode *left = PHINode::Create(builder_.getPtrTy(), 2, "left", chunk_->begin());
    {
      IRBuilder<>::InsertPointGuard back(builder_);
      builder_.SetInsertPoint(hintedPreheader_->getTerminator());
      SliceLowering::Current entered = entering();
      left->addIncoming(position(access, number(0), false, &entered), hintedPreheader_);
    }
    Value *here = position(access, first_, false, &current_);
    Value *length = difference(here, left);
    length = builder_.CreateSelect(builder_.CreateICmpULT(length, number(rangeMax)), length, number(0));
    if (access.apart) {
      Value *apart = builder_.CreateFreeze(slices_->lower(access.apart, SliceLowering::Iterations(), builder_));
      length = builder_.CreateSelect(builder_.CreateICmpSGE(apart, number(0)), length, number(0));
    }
    hintCall(Call::LoopEvict, {left, length, builder_.getInt32(access.evict == Eviction::Soon)});
    Value *next = builder_.CreatePtrAdd(here, number(1 - page));
    next = builder_.CreateSelect(builder_.CreateIsNull(first_), here, next);
    behind_.push_back({left, next});
  }
}

// This chunk and the next one: a page in both is not yet begun. None is named that an earlier chunk has begun to write.
void Transform::overwriteAhead() {
  for (const Access &access : decision_.accesses) {
    if (!access.overwrites) continue;
    Value *until = builder_.CreateAdd(first_, builder_.CreateMul(perChunk_, number(2)));
    Value *last = builder_.CreateSub(builder_.CreateBinaryIntrinsic(Intrinsic::umin, until, total_), number(1));
    Value *start = position(access, first_, false), *end = builder_.CreatePtrAdd(position(access, last, false), number(access.step));
    interface_.call(builder_, table_, Call::Overwrite, {start, difference(end, start)});
  }
}

// The second version ends after `limit` iterations instead of by its own condition; or also then, where it can be left.
void Transform::limitIterations(Value *limit) {
  BasicBlock *header = hinted(loop_.getHeader()), *latch = hinted(loop_.getLoopLatch());
  ofChunk_ = PHINode::Create(builder_.getInt64Ty(), 2, "of.chunk", header->begin());
  Instruction *branch = latch->getTerminator();
  if (decision_.isLeft) {
    BasicBlock *again = block("again");
    builder_.SetInsertPoint(again);
    Instruction *own = std::exchange(branch, builder_.CreateBr(header));
    branch->setMetadata(LLVMContext::MD_loop, own->getMetadata(LLVMContext::MD_loop));
    own->setMetadata(LLVMContext::MD_loop, nullptr);
    own->replaceSuccessorWith(header, again);
    header->replacePhiUsesWith(latch, again);
    latch = again;
  }
  builder_.SetInsertPoint(branch);
  Value *next = builder_.CreateAdd(ofChunk_, number(1), "", true, true);
  ofChunk_->addIncoming(number(0), innerPreheader_);
  ofChunk_->addIncoming(next, latch);
  auto *limited = builder_.CreateCondBr(builder_.CreateICmpEQ(next, limit), chunkEnd_, header);
  // One loop that is unrolled beside it is enough.
  auto *rolled = MDNode::get(context_, MDString::get(context_, "llvm.loop.unroll.runtime.disable"));
  limited->setMetadata(LLVMContext::MD_loop, makePostTransformationMetadata(context_, branch->getMetadata(LLVMContext::MD_loop), {}, {rolled}));
  branch->eraseFromParent();
}

// The next chunk, or the end. What the loop's pace and needs are the runtime learns after a few chunks: then it is asked again.
void Transform::leave() {
  builder_.SetInsertPoint(chunkEnd_);
  Value *next = builder_.CreateAdd(first_, length_, "", true, true);
  BasicBlock *more = block("more"), *learn = block("learn"), *go = block("go.on");
  BasicBlock *end = decision_.isLeft ? nullptr : block("end");
  if (end) builder_.CreateCondBr(builder_.CreateICmpEQ(next, total_), end, more);
  else builder_.CreateBr(more);
  builder_.SetInsertPoint(more);
  // The last iteration needs no answer, and is not ahead of the next one.
  Value *isTime = builder_.CreateICmpUGE(next, askAgain_), *isLast = builder_.CreateICmpEQ(next, builder_.CreateSub(total_, number(1)));
  builder_.CreateCondBr(builder_.CreateSelect(isLast, builder_.getFalse(), isTime), learn, go);

  builder_.SetInsertPoint(learn);
  Value *passed = builder_.CreateSub(next, asked_), *twice = builder_.CreateMul(passed, number(2)), *left = builder_.CreateSub(total_, next);
  hintCall(Call::LoopEnd, {withHints(passed)});
  Value *further = askAll(next, decision_.endsEarly ? builder_.CreateBinaryIntrinsic(Intrinsic::umin, twice, left) : left, next_);
  // An attempt after a time without hints is judged soon.
  Value *isAttempt = builder_.CreateAnd(builder_.CreateIsNull(distance_), builder_.CreateIsNotNull(further));
  Value *until = builder_.CreateSelect(isAttempt, firstIterations(), twice);
  Value *askNext = builder_.CreateAdd(next, until);
  BasicBlock *learnt = builder_.GetInsertBlock();
  builder_.CreateBr(go);

  builder_.SetInsertPoint(go);
  auto either = [&](Value *as_before, Value *anew) {
    PHINode *phi = builder_.CreatePHI(anew->getType(), 2);
    phi->addIncoming(as_before, more);
    phi->addIncoming(anew, learnt);
    return phi;
  };
  behind_.push_back({first_, next});
  behind_.push_back({distance_, either(distance_, further)});
  behind_.push_back({asked_, either(asked_, next)});
  behind_.push_back({askAgain_, either(askAgain_, askNext)});
  markDone(*builder_.CreateBr(chunk_));
  for (auto [phi, value] : behind_) phi->addIncoming(value, go);

  if (!end) {
    SmallVector<BasicBlock *, 4> exiting;
    loop_.getExitingBlocks(exiting);
    for (BasicBlock *one : exiting) leaveInTheMiddle(one, [&] { return withHints(builder_.CreateAdd(builder_.CreateSub(first_, asked_), ofChunk_)); });
    return;
  }
  builder_.SetInsertPoint(end);
  hintCall(Call::LoopEnd, {withHints(builder_.CreateSub(total_, asked_))});
  builder_.CreateBr(loop_.getUniqueExitBlock());
  join(loop_.getLoopLatch(), end, *loop_.getUniqueExitBlock());
}

// The second version is left where it was as it was written; it says after how many iterations, where the program goes on.
void Transform::leaveInTheMiddle(BasicBlock *exiting, function_ref<Value *()> iterations) {
  SmallPtrSet<BasicBlock *, 4> seen; // a switch may lead to one more than once
  for (BasicBlock *exit : successors(exiting)) {
    if (loop_.contains(exit) || !seen.insert(exit).second) continue;
    BasicBlock *from = hinted(exiting);
    if (!exit->isEHPad()) { // what is thrown leaves the loop as it is
      BasicBlock *end = block("end");
      from->getTerminator()->replaceSuccessorWith(exit, end);
      from = end;
      builder_.SetInsertPoint(end);
      if (!isDeadEnd(*exit)) hintCall(Call::LoopEnd, {iterations()});
      builder_.CreateBr(exit);
    }
    join(exiting, from, *exit);
  }
}

// What is used after the loop comes from either version: from where the plain one leaves it, or from where the second one does.
void Transform::join(BasicBlock *plain, BasicBlock *second, BasicBlock &exit) {
  for (PHINode &phi : exit.phis()) {
    Value *value = phi.getIncomingValueForBlock(plain);
    Value *other = map_.lookup(value);
    phi.addIncoming(other ? other : value, second);
  }
}

void Transform::counted() {
  versions();
  ask();
  chunks();
  leave();
  for (const GatherCode &code : gathers_) outline(code);
}

// A chain has no chunks: the second version asks for the next element as soon as it can. Where the elements are is not known ahead of it, nor how
// many there are, which are counted instead.
void Transform::chain() {
  const Access &access = decision_.accesses.front();
  auto *link = cast<LoadInst>(access.at);
  versions();
  builder_.SetInsertPoint(decide_->getTerminator());
  Value *nowhere = ConstantPointerNull::get(builder_.getPtrTy());
  Value *answer = interface_.call(builder_, table_, Call::LoopBegin, {state_, nowhere, number(0), number(0)});
  builder_.CreateCondBr(builder_.CreateIsNotNull(answer), hintedPreheader_, plainPreheader_);
  decide_->getTerminator()->eraseFromParent();
  LoadInst *second = hinted(link);
  builder_.SetInsertPoint(second->getNextNode());
  builder_.SetCurrentDebugLocation(link->getDebugLoc());
  hintCall(Call::LoopFetch, {second, number(access.bytes)});
  BasicBlock *header = hinted(loop_.getHeader()), *latch = hinted(loop_.getLoopLatch());
  auto *before = PHINode::Create(builder_.getInt64Ty(), 2, "elements.before", header->begin());
  builder_.SetInsertPoint(header, header->getFirstInsertionPt());
  Value *elements = builder_.CreateAdd(before, number(1), "elements", true, true);
  before->addIncoming(number(0), hintedPreheader_);
  before->addIncoming(elements, latch);
  SmallVector<BasicBlock *, 4> leaving;
  loop_.getExitingBlocks(leaving);
  for (BasicBlock *exiting : leaving) leaveInTheMiddle(exiting, [&] { return elements; });
}

} // namespace

void hint(const LoopDecision &decision, Interface &interface, FunctionAnalyses &analyses, SmallPtrSetImpl<BasicBlock *> &done) {
  for (Loop *loop : decision.loop->getLoopsInPreorder()) done.insert(loop->getHeader());
  Function &function = *decision.loop->getHeader()->getParent();
  SmallPtrSet<BasicBlock *, 32> before(llvm::from_range, llvm::make_pointer_range(function));
  Transform transform(decision, interface, analyses);
  if (decision.taken) transform.counted();
  else transform.chain();
  for (BasicBlock &block : function)
    if (!before.contains(&block)) done.insert(&block);
}

} // namespace hinterland
