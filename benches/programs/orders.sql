PRAGMA cache_size=-2000;
CREATE TABLE o(id INTEGER PRIMARY KEY, cust INTEGER, amt INTEGER, note TEXT);
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<{rows}) INSERT INTO o SELECT x,(x*7919)%300007,(x*104729)%1000,
 'note number '||((x*31337)%1000003)||' with some text that takes room in the row '||hex(x*2654435761) FROM c;
CREATE INDEX oc ON o(cust);
CREATE TABLE cst AS SELECT cust, sum(amt) s, count(*) n FROM o GROUP BY cust;
UPDATE o SET amt=amt+1 WHERE id%13=0;
SELECT count(*),sum(o.amt*c.n),sum(length(note)) FROM o JOIN cst c ON c.cust=o.cust WHERE o.id%5=0;
SELECT sum(length(note)) FROM o WHERE cust IN (SELECT cust FROM cst WHERE s%17=3);
