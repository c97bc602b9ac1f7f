%% Tuples of integers in a table of the process, visited and replaced in random order. usage: escript records.erl MEBIBYTES
main([Words]) ->
    Count = list_to_integer(Words) * 1048576 div 300,
    Table = ets:new(records, [set]),
    lists:foreach(fun(I) -> ets:insert(Table, {I, record(I)}) end, lists:seq(0, Count - 1)),
    io:format("~p records, sum ~p~n", [Count, visit(1, 1, 0, Count, Table)]).

record(I) -> list_to_tuple(lists:seq(I, I + 27)).

visit(24001, _, Sum, _, _) -> Sum;
visit(Visit, X0, Sum0, Count, Table) ->
    X = (X0 * 1103515245 + 12345) band 16#7fffffff,
    At = (X bsr 4) rem Count,
    Sum = (Sum0 * 31 + element(X rem 28 + 1, ets:lookup_element(Table, At, 2))) band 16#ffffffff,
    Visit rem 4 =:= 0 andalso ets:insert(Table, {At, record(X)}),
    visit(Visit + 1, X, Sum, Count, Table).
