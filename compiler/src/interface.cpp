#include "interface.h"
#include "llvm/Support/ModRef.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;

namespace hinterland {

static constexpr uint32_t version = 1;
static constexpr char pointerName[] = "__hinterland_hints_1";
// Before the program's own constructors, which have 65535 unless they say otherwise; up to 100 belong to the system.
static constexpr int constructorPriority = 101;
// struct hinterland_hints: two 32-bit words, of which the second is its size, then pointers to functions, in the order of Call.
static constexpr unsigned sizeAt = 4, callsAt = 8;
// struct hinterland_loop: words of the runtime's state, before the word on the walk.
static constexpr unsigned stateWords = 7;

Interface::Interface(Module &module, const Plan &plan) : module_(module), plan_(plan), context_(module.getContext()) {
  if (plan.given) note();
}

Value *Interface::table(IRBuilderBase &builder) { return builder.CreateLoad(builder.getPtrTy(), pointer(), "hints"); }

Value *Interface::has(IRBuilderBase &builder, Value *table, Call which) {
  Value *size = builder.CreateLoad(builder.getInt32Ty(), builder.CreateConstInBoundsGEP1_64(builder.getInt8Ty(), table, sizeAt));
  return builder.CreateICmpUGT(size, builder.getInt32(callsAt + 8 * unsigned(which)));
}

GlobalVariable *Interface::loop(const Twine &name, bool walksInSteps) {
  Type *number = Type::getInt64Ty(context_);
  auto *type = StructType::get(PointerType::getUnqual(context_), ArrayType::get(number, stateWords), number);
  Constant *text = ConstantDataArray::getString(context_, name.str());
  auto *words = new GlobalVariable(module_, text->getType(), true, GlobalValue::PrivateLinkage, text, "hinterland.name");
  words->setUnnamedAddr(GlobalValue::UnnamedAddr::Global);
  Constant *state = ConstantStruct::get(type, {words, ConstantAggregateZero::get(type->getElementType(1)), ConstantInt::get(number, walksInSteps)});
  return new GlobalVariable(module_, type, false, GlobalValue::InternalLinkage, state, "hinterland.loop");
}

CallInst *Interface::call(IRBuilderBase &builder, Value *table, Call which, ArrayRef<Value *> arguments) {
  SmallVector<Type *, 8> types;
  for (Value *argument : arguments) types.push_back(argument->getType());
  Type *result = which == Call::LoopBegin || which == Call::LoopSearch ? builder.getInt64Ty() : builder.getVoidTy();
  Value *slot = builder.CreateConstInBoundsGEP1_64(builder.getInt8Ty(), table, callsAt + 8 * unsigned(which));
  auto *load = builder.CreateLoad(builder.getPtrTy(), slot);
  // The table is constant.
  load->setMetadata(LLVMContext::MD_invariant_load, MDNode::get(context_, {}));
  CallInst *call = builder.CreateCall(FunctionType::get(result, types, false), load, arguments);
  // Nothing that the program computes depends on another hint; addresses are numbers to it, except the list of loop_fetchv.
  call->setDoesNotThrow();
  call->addFnAttr(Attribute::WillReturn);
  call->addFnAttr(Attribute::NoCallback);
  call->addFnAttr(Attribute::NoFree);
  call->addFnAttr(Attribute::NoSync);
  MemoryEffects effects = MemoryEffects::inaccessibleMemOnly();
  if (which == Call::LoopFetchv) effects |= MemoryEffects::argMemOnly(ModRefInfo::Ref);
  // What is overwritten may be gone from here on: nothing that reads it is moved behind the call.
  if (which == Call::Overwrite) effects |= MemoryEffects::argMemOnly(ModRefInfo::Mod);
  call->setMemoryEffects(effects);
  for (unsigned index = 0; index < arguments.size(); index++)
    if (types[index]->isPointerTy()) call->addParamAttr(index, Attribute::getWithCaptureInfo(context_, CaptureInfo::none()));
  return call;
}

GlobalVariable *Interface::pointer() {
  if (pointer_) return pointer_;
  if ((pointer_ = module_.getGlobalVariable(pointerName, true))) return pointer_;
  auto *type = PointerType::getUnqual(context_);
  pointer_ = new GlobalVariable(module_, type, false, GlobalValue::LinkOnceODRLinkage, ConstantPointerNull::get(type), pointerName);
  pointer_->setVisibility(GlobalValue::HiddenVisibility);
  pointer_->setDSOLocal(true);
  Comdat *comdat = module_.getOrInsertComdat(pointerName);
  pointer_->setComdat(comdat);
  constructor(pointer_, comdat);
  if (!plan_.given) note();
  return pointer_;
}

void Interface::constructor(GlobalVariable *pointer, Comdat *comdat) {
  auto *asked = FunctionType::get(PointerType::getUnqual(context_), {Type::getInt32Ty(context_)}, false);
  auto *ask = cast<Function>(module_.getOrInsertFunction("hinterland_hints", asked).getCallee());
  if (ask->isDeclaration()) ask->setLinkage(GlobalValue::ExternalWeakLinkage);
  // Through the global offset table: code that is not position-independent would be linked with the address 0.
  ask->addFnAttr(Attribute::NonLazyBind);
  ask->setDSOLocal(false);

  auto *body = Function::Create(FunctionType::get(Type::getVoidTy(context_), false), GlobalValue::LinkOnceODRLinkage,
                                "__hinterland_ask_1", module_);
  body->setVisibility(GlobalValue::HiddenVisibility);
  body->setDSOLocal(true);
  body->setComdat(comdat);
  body->addFnAttr(Attribute::NoUnwind);
  auto *entry = BasicBlock::Create(context_, "", body), *there = BasicBlock::Create(context_, "", body), *end = BasicBlock::Create(context_, "", body);
  IRBuilder<> builder(entry);
  builder.CreateCondBr(builder.CreateIsNull(ask), end, there);
  builder.SetInsertPoint(there);
  builder.CreateStore(builder.CreateCall(asked, ask, {builder.getInt32(version)}), pointer);
  builder.CreateBr(end);
  builder.SetInsertPoint(end);
  builder.CreateRetVoid();
  appendToGlobalCtors(module_, body, constructorPriority, pointer);
}

// An object names its plan also where none of its loops is hinted: so it can be told that it was compiled with it.
// ELF: namesz, descsz, type, "Hinterland", then version and digest of the plan.
void Interface::note() {
  Type *word = Type::getInt32Ty(context_);
  auto *name = ConstantDataArray::getRaw(StringRef("Hinterland\0\0", 12), 12, Type::getInt8Ty(context_));
  auto *digest = ConstantDataArray::get(context_, ArrayRef<uint8_t>(plan_.digest));
  auto number = [&](uint32_t value) { return ConstantInt::get(word, value); };
  Constant *content = ConstantStruct::getAnon({number(11), number(4 + 32), number(1), name, number(version), digest});
  auto *note = new GlobalVariable(module_, content->getType(), true, GlobalValue::PrivateLinkage, content, "hinterland.note");
  note->setSection(".note.hinterland");
  note->setAlignment(Align(4));
  appendToCompilerUsed(module_, {note});
}

} // namespace hinterland
