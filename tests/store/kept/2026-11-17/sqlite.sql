-- left at 1794892966560
BEGIN TRANSACTION;
CREATE TABLE agent (
    id TEXT PRIMARY KEY NOT NULL,
    misses INTEGER NOT NULL,
    missed_at INTEGER NOT NULL,
    stalled INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "agent" VALUES('eve',28,1794892966480,1);
CREATE TABLE attempt (
    task TEXT NOT NULL,
    token INTEGER NOT NULL,
    agent TEXT NOT NULL,
    granted_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    command TEXT NOT NULL,
    detail TEXT NOT NULL,
    late TEXT, afterwards TEXT,
    PRIMARY KEY (task, token)
) WITHOUT ROWID;
INSERT INTO "attempt" VALUES('t_2g9sdspwwm5hb2dj',2,'flow-elsewhere-8030',1794892966426,1794892966471,'done','k3jj3wz2j1b3dhcx.3','completed',NULL,NULL);
CREATE TABLE bar (
    task TEXT NOT NULL,
    agent TEXT NOT NULL,
    PRIMARY KEY (task, agent)
) WITHOUT ROWID;
INSERT INTO "bar" VALUES('t_tk3rhn9rby1h9em9','cato');
CREATE TABLE cursor (
    follower TEXT PRIMARY KEY NOT NULL,
    xid INTEGER NOT NULL,
    id INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "cursor" VALUES('kept',0,65);
CREATE TABLE journal (
    last INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    events TEXT NOT NULL
);
INSERT INTO "journal" VALUES(1,1794892963281,'[{"kind":"task_submitted","task":"t_1m7kza7ec4wq7vhz","data":{"name":"done"}}]');
INSERT INTO "journal" VALUES(2,1794892963288,'[{"kind":"task_claimed","task":"t_1m7kza7ec4wq7vhz","agent":"ada","token":1,"data":{"deadline":1794893863288}}]');
INSERT INTO "journal" VALUES(3,1794892963292,'[{"kind":"task_completed","task":"t_1m7kza7ec4wq7vhz","agent":"ada","token":1,"data":{"elapsed_ms":4}}]');
INSERT INTO "journal" VALUES(4,1794892963304,'[{"kind":"task_submitted","task":"t_1m7kza7f06fw2vqh","data":{"name":"failed"}}]');
INSERT INTO "journal" VALUES(5,1794892963309,'[{"kind":"task_submitted","task":"t_1m7kza7fc3gn4dzg","data":{"name":"skipped"}}]');
INSERT INTO "journal" VALUES(6,1794892963315,'[{"kind":"task_claimed","task":"t_1m7kza7f06fw2vqh","agent":"ada","token":1,"data":{"deadline":1794893863315}}]');
INSERT INTO "journal" VALUES(7,1794892963316,'[{"kind":"task_failed","task":"t_1m7kza7f06fw2vqh","agent":"ada","token":1,"data":{"reason":"validation is not retried","message":"no such table"}}]');
INSERT INTO "journal" VALUES(8,1794892963320,'[{"kind":"task_submitted","task":"t_1m7kza7fn2c718dv","data":{"name":"cancelled"}}]');
INSERT INTO "journal" VALUES(9,1794892963326,'[{"kind":"task_cancelled","task":"t_1m7kza7fn2c718dv","data":{"reason":"not wanted any more"}}]');
INSERT INTO "journal" VALUES(10,1794892963328,'[{"kind":"task_skipped","task":"t_1m7kza7fc3gn4dzg","data":{"reason":"t_1m7kza7f06fw2vqh was failed"}}]');
INSERT INTO "journal" VALUES(11,1794892963329,'[{"kind":"task_submitted","task":"t_1m7kza7g0e5aq36w","data":{"name":"too big"}}]');
INSERT INTO "journal" VALUES(12,1794892963330,'[{"kind":"task_claimed","task":"t_1m7kza7g0e5aq36w","agent":"ada","token":1,"data":{"deadline":1794893863330}}]');
INSERT INTO "journal" VALUES(13,1794892963334,'[{"kind":"question_asked","task":"t_1m7kza7g0e5aq36w","data":{"question":"q_1m7kza7g0e5aq36w.1","kind":"agent","text":"This is too much for one.","options":["Split task into smaller subtasks","Skip task and continue"]}}]');
INSERT INTO "journal" VALUES(16,1794892963340,'[{"kind":"question_answered","task":"t_1m7kza7g0e5aq36w","data":{"question":"q_1m7kza7g0e5aq36w.1","choice":"split","by":"cleo"}},{"kind":"task_split","task":"t_1m7kza7g0e5aq36w","data":{"subtasks":["t_1m7kza7g89pkbntb"]}},{"kind":"task_submitted","task":"t_1m7kza7g89pkbntb","data":{"name":"part"}}]');
INSERT INTO "journal" VALUES(17,1794892963360,'[{"kind":"task_submitted","task":"t_1m7kza7gg33twvne","data":{"name":"needs the parked"}}]');
INSERT INTO "journal" VALUES(18,1794892963365,'[{"kind":"task_submitted","task":"t_1m7kza7h4eqdamq8","data":{"name":"parked by"}}]');
INSERT INTO "journal" VALUES(19,1794892963372,'[{"kind":"task_claimed","task":"t_1m7kza7h4eqdamq8","agent":"ada","token":1,"data":{"deadline":1794893863372}}]');
INSERT INTO "journal" VALUES(21,1794892963381,'[{"kind":"service_parked","task":"t_1m7kza7h4eqdamq8","data":{"service":"parked","until":1794900163381}},{"kind":"task_returned","task":"t_1m7kza7h4eqdamq8","agent":"ada","token":1,"data":{"reason":"service_parked"}}]');
INSERT INTO "journal" VALUES(22,1794892963449,'[{"kind":"breaker_opened","data":{"service":"broken","failures":3,"pause_ms":30000}}]');
INSERT INTO "journal" VALUES(24,1794892963451,'[{"kind":"service_escalated","data":{"service":"locked","cause":"auth","reason":"auth is not retried","question":"q_@locked.1"}},{"kind":"question_asked","data":{"question":"q_@locked.1","kind":"service_needs_help","text":"Service locked refuses who we say we are (PermissionError: 401). Calls that meet this are given up. How should we proceed?","options":["It is mended: go on, and ask again if it happens again","Ask again in an hour, if it still happens"]}}]');
INSERT INTO "journal" VALUES(25,1794892963460,'[{"kind":"run_opened","run":"r_1m7kza7kw8h1d73v","data":{"name":"stands","deadline":1794903763460}}]');
INSERT INTO "journal" VALUES(26,1794892963464,'[{"kind":"task_submitted","task":"t_1m7kza7m84gprxhy","run":"r_1m7kza7kw8h1d73v","data":{"name":"asks"}}]');
INSERT INTO "journal" VALUES(27,1794892963469,'[{"kind":"task_claimed","task":"t_1m7kza7m84gprxhy","run":"r_1m7kza7kw8h1d73v","agent":"ben","token":1,"data":{"deadline":1794893863469}}]');
INSERT INTO "journal" VALUES(29,1794892963477,'[{"kind":"question_asked","task":"t_1m7kza7m84gprxhy","run":"r_1m7kza7kw8h1d73v","data":{"question":"q_1m7kza7m84gprxhy.1","kind":"agent","text":"Which table?","options":["Try again as it is","Skip task and continue"]}},{"kind":"run_stands","run":"r_1m7kza7kw8h1d73v","data":{"question":"q_1m7kza7m84gprxhy.1"}}]');
INSERT INTO "journal" VALUES(30,1794892963488,'[{"kind":"task_submitted","task":"t_1m7kza7mw957tb1n","data":{"name":"answered"}}]');
INSERT INTO "journal" VALUES(31,1794892963490,'[{"kind":"task_claimed","task":"t_1m7kza7mw957tb1n","agent":"ben","token":1,"data":{"deadline":1794893863490}}]');
INSERT INTO "journal" VALUES(32,1794892963496,'[{"kind":"question_asked","task":"t_1m7kza7mw957tb1n","data":{"question":"q_1m7kza7mw957tb1n.1","kind":"agent","text":"And this one?","options":["Try again as it is","Skip task and continue"]}}]');
INSERT INTO "journal" VALUES(34,1794892963500,'[{"kind":"question_answered","task":"t_1m7kza7mw957tb1n","data":{"question":"q_1m7kza7mw957tb1n.1","choice":"retry","by":"cleo"}},{"kind":"task_ready","task":"t_1m7kza7mw957tb1n","data":{"reason":"answered"}}]');
INSERT INTO "journal" VALUES(35,1794892963508,'[{"kind":"task_submitted","task":"t_1m7kza7ngbhadx67","data":{"name":"asks in passing"}}]');
INSERT INTO "journal" VALUES(36,1794892963515,'[{"kind":"task_claimed","task":"t_1m7kza7ngbhadx67","agent":"ben","token":1,"data":{"deadline":1794921763515}}]');
INSERT INTO "journal" VALUES(37,1794892963526,'[{"kind":"question_asked","task":"t_1m7kza7ngbhadx67","data":{"question":"q_1m7kza7ngbhadx67.1","kind":"agent","text":"By the way?","options":["Try again as it is","Skip task and continue"]}}]');
INSERT INTO "journal" VALUES(38,1794892963544,'[{"kind":"task_submitted","task":"t_tk3rhn9rby1h9em9","data":{"name":"ready"}}]');
INSERT INTO "journal" VALUES(39,1794892963548,'[{"kind":"task_submitted","task":"t_1m7kza7pwc2p757j","data":{"name":"held"}}]');
INSERT INTO "journal" VALUES(40,1794892963560,'[{"kind":"task_submitted","task":"t_1m7kza7q0bnexqdk","data":{"name":"waiting"}}]');
INSERT INTO "journal" VALUES(41,1794892963568,'[{"kind":"task_claimed","task":"t_1m7kza7pwc2p757j","agent":"ada","token":1,"data":{"deadline":1794921763568}}]');
INSERT INTO "journal" VALUES(42,1794892963580,'[{"kind":"task_checked_in","task":"t_1m7kza7pwc2p757j","agent":"ada","token":1,"data":{"note":"half of it","progress":0.5}}]');
INSERT INTO "journal" VALUES(43,1794892963580,'[{"kind":"receipt_written","task":"t_1m7kza7pwc2p757j","agent":"ada","token":1,"data":{"receipt":"rc_kept.1","status":"partial","path":"receipts/kept.json"}}]');
INSERT INTO "journal" VALUES(45,1794892963604,'[{"kind":"request_sent","task":"t_1m7kza7pwc2p757j","agent":"ada","token":1,"data":{"request":"t_1m7kza7r02b3r1df","kind":"delegation","to":"expert","timeout_ms":18000000}},{"kind":"task_submitted","task":"t_1m7kza7r02b3r1df","data":{"name":"request"}}]');
INSERT INTO "journal" VALUES(46,1794892963612,'[{"kind":"task_submitted","task":"t_1m7kza7rw6tdpp5m","data":{"name":"leased"}}]');
INSERT INTO "journal" VALUES(47,1794892963628,'[{"kind":"task_claimed","task":"t_1m7kza7rw6tdpp5m","agent":"bob","token":1,"data":{"deadline":1794921763628}}]');
INSERT INTO "journal" VALUES(48,1794892963644,'[{"kind":"task_submitted","task":"t_1m7kza7sj1zxkne3","data":{"name":"watched"}}]');
INSERT INTO "journal" VALUES(49,1794892963660,'[{"kind":"task_claimed","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"deadline":1794921763660}}]');
INSERT INTO "journal" VALUES(50,1794892963674,'[{"kind":"task_submitted","task":"t_1m7kza7tmbj4e1p7","data":{"name":"delayed"}}]');
INSERT INTO "journal" VALUES(51,1794892963684,'[{"kind":"task_submitted","task":"t_1m7kza7v0c8gkh86","data":{"name":"tried again"}}]');
INSERT INTO "journal" VALUES(52,1794892963701,'[{"kind":"task_claimed","task":"t_1m7kza7v0c8gkh86","agent":"ada","token":1,"data":{"deadline":1794893863701}}]');
INSERT INTO "journal" VALUES(53,1794892963713,'[{"kind":"task_returned","task":"t_1m7kza7v0c8gkh86","agent":"ada","token":1,"data":{"reason":"service_parked"}}]');
INSERT INTO "journal" VALUES(54,1794892963725,'[{"kind":"task_submitted","task":"t_1m7kza7w866jsyy8","data":{"name":"late"}}]');
INSERT INTO "journal" VALUES(55,1794892963740,'[{"kind":"task_claimed","task":"t_1m7kza7w866jsyy8","agent":"ada","token":1,"data":{"deadline":1794893863740}}]');
INSERT INTO "journal" VALUES(56,1794892963753,'[{"kind":"task_returned","task":"t_1m7kza7w866jsyy8","agent":"ada","token":1,"data":{"reason":"not now"}}]');
INSERT INTO "journal" VALUES(57,1794892963768,'[{"kind":"run_opened","run":"r_1m7kza7xgds6ve5x","data":{"name":"night","deadline":1794914563768}}]');
INSERT INTO "journal" VALUES(58,1794892963780,'[{"kind":"task_submitted","task":"t_1m7kza7y035rrejz","run":"r_1m7kza7xgds6ve5x","data":{"name":"of a run"}}]');
INSERT INTO "journal" VALUES(59,1794892963792,'[{"kind":"run_opened","run":"r_1m7kza7y910ezp6h","data":{"name":"over","deadline":null}}]');
INSERT INTO "journal" VALUES(61,1794892963800,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":1}},{"kind":"agent_stalled","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"action":"marked_for_restart"}}]');
INSERT INTO "journal" VALUES(62,1794892963811,'[{"kind":"task_submitted","task":"t_1m7kza7yr8h9e6ae","run":"r_1m7kza7y910ezp6h","data":{"name":"of a run that ended"}}]');
INSERT INTO "journal" VALUES(63,1794892963828,'[{"kind":"run_ended","run":"r_1m7kza7y910ezp6h","data":{"reason":"enough"}}]');
INSERT INTO "journal" VALUES(64,1794892963846,'[{"kind":"task_cancelled","task":"t_1m7kza7yr8h9e6ae","run":"r_1m7kza7y910ezp6h","data":{"reason":"enough"}}]');
INSERT INTO "journal" VALUES(65,1794892963860,'[{"kind":"run_opened","run":"r_1m7kza80h7hybwke","data":{"name":"ends","deadline":null}}]');
INSERT INTO "journal" VALUES(66,1794892963868,'[{"kind":"task_submitted","task":"t_1m7kza80wdmp57tt","run":"r_1m7kza80h7hybwke","data":{"name":"of a run that ends"}}]');
INSERT INTO "journal" VALUES(69,1794892964197,'[{"kind":"run_opened","run":"r_kept","data":{"name":"digest","deadline":null}},{"kind":"task_submitted","task":"t_am44btt1wzcjqax7","run":"r_kept","data":{"name":"digest"}},{"kind":"task_claimed","task":"t_am44btt1wzcjqax7","run":"r_kept","agent":"elsewhere:8027.1217849.0a0b0c0d","token":1,"data":{"deadline":1794894769197}}]');
INSERT INTO "journal" VALUES(73,1794892964201,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":2}},{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":3}},{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":4}},{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":5}}]');
INSERT INTO "journal" VALUES(74,1794892964208,'[{"kind":"step_recorded","task":"t_njnrreknqkwn38rt","run":"r_kept","agent":"elsewhere:8027.1217849.0a0b0c0d","token":1,"data":{"name":"fetch","elapsed_ms":0}}]');
INSERT INTO "journal" VALUES(75,1794892964212,'[{"kind":"step_recorded","task":"t_4rvx0q337d25wfxg","run":"r_kept","agent":"elsewhere:8027.1217849.0a0b0c0d","token":1,"data":{"name":"fetch","elapsed_ms":0}}]');
INSERT INTO "journal" VALUES(79,1794892964639,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":6}},{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":7}},{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":8}},{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":9}}]');
INSERT INTO "journal" VALUES(80,1794892964732,'[{"kind":"run_opened","run":"r_1m7kza8vb758ctjq","data":{"name":"chain","deadline":1794895364732}}]');
INSERT INTO "journal" VALUES(81,1794892964737,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":10}}]');
INSERT INTO "journal" VALUES(85,1794892964740,'[{"kind":"task_submitted","task":"t_7c167p5bfwkhdvbx","run":"r_1m7kza8vb758ctjq","data":{"name":"first"}},{"kind":"task_submitted","task":"t_2g9sdspwwm5hb2dj","run":"r_1m7kza8vb758ctjq","data":{"name":"slow"}},{"kind":"task_submitted","task":"t_4q0b6tyexp6b55wq","run":"r_1m7kza8vb758ctjq","data":{"name":"cut"}},{"kind":"task_submitted","task":"t_8thwrjgrjm3p7q9a","run":"r_1m7kza8vb758ctjq","data":{"name":"last"}}]');
INSERT INTO "journal" VALUES(86,1794892964753,'[{"kind":"task_claimed","task":"t_7c167p5bfwkhdvbx","run":"r_1m7kza8vb758ctjq","agent":"flow-elsewhere-8030","token":1,"data":{"deadline":1794893564753}}]');
INSERT INTO "journal" VALUES(87,1794892964782,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":11}}]');
INSERT INTO "journal" VALUES(88,1794892964802,'[{"kind":"task_completed","task":"t_7c167p5bfwkhdvbx","run":"r_1m7kza8vb758ctjq","agent":"flow-elsewhere-8030","token":1,"data":{"elapsed_ms":49}}]');
INSERT INTO "journal" VALUES(89,1794892964810,'[{"kind":"task_ready","task":"t_2g9sdspwwm5hb2dj","run":"r_1m7kza8vb758ctjq","data":{"reason":"what it needed is there"}}]');
INSERT INTO "journal" VALUES(90,1794892964815,'[{"kind":"task_claimed","task":"t_2g9sdspwwm5hb2dj","run":"r_1m7kza8vb758ctjq","agent":"flow-elsewhere-8030","token":1,"data":{"deadline":1794892966315}}]');
INSERT INTO "journal" VALUES(91,1794892964882,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":12}}]');
INSERT INTO "journal" VALUES(92,1794892964981,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":13}}]');
INSERT INTO "journal" VALUES(93,1794892965081,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":14}}]');
INSERT INTO "journal" VALUES(94,1794892965182,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":15}}]');
INSERT INTO "journal" VALUES(95,1794892965282,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":16}}]');
INSERT INTO "journal" VALUES(96,1794892965381,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":17}}]');
INSERT INTO "journal" VALUES(97,1794892965481,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":18}}]');
INSERT INTO "journal" VALUES(98,1794892965582,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":19}}]');
INSERT INTO "journal" VALUES(99,1794892965681,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":20}}]');
INSERT INTO "journal" VALUES(100,1794892965781,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":21}}]');
INSERT INTO "journal" VALUES(101,1794892965881,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":22}}]');
INSERT INTO "journal" VALUES(102,1794892965982,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":23}}]');
INSERT INTO "journal" VALUES(103,1794892966081,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":24}}]');
INSERT INTO "journal" VALUES(104,1794892966182,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":25}}]');
INSERT INTO "journal" VALUES(105,1794892966284,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":26}}]');
INSERT INTO "journal" VALUES(107,1794892966318,'[{"kind":"agent_timeout","task":"t_2g9sdspwwm5hb2dj","run":"r_1m7kza8vb758ctjq","agent":"flow-elsewhere-8030","token":1,"data":{"elapsed_ms":1503}},{"kind":"task_returned","task":"t_2g9sdspwwm5hb2dj","run":"r_1m7kza8vb758ctjq","agent":"flow-elsewhere-8030","token":1,"data":{"reason":"agent_timeout"}}]');
INSERT INTO "journal" VALUES(108,1794892966382,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":27}}]');
INSERT INTO "journal" VALUES(109,1794892966426,'[{"kind":"task_claimed","task":"t_2g9sdspwwm5hb2dj","run":"r_1m7kza8vb758ctjq","agent":"flow-elsewhere-8030","token":2,"data":{"deadline":1794892967926}}]');
INSERT INTO "journal" VALUES(110,1794892966471,'[{"kind":"task_completed","task":"t_2g9sdspwwm5hb2dj","run":"r_1m7kza8vb758ctjq","agent":"flow-elsewhere-8030","token":2,"data":{"elapsed_ms":45}}]');
INSERT INTO "journal" VALUES(111,1794892966482,'[{"kind":"checkpoint_timeout","task":"t_1m7kza7sj1zxkne3","agent":"eve","token":1,"data":{"checkpoint_count":28}}]');
INSERT INTO "journal" VALUES(112,1794892966482,'[{"kind":"task_ready","task":"t_4q0b6tyexp6b55wq","run":"r_1m7kza8vb758ctjq","data":{"reason":"what it needed is there"}}]');
INSERT INTO "journal" VALUES(113,1794892966489,'[{"kind":"task_claimed","task":"t_4q0b6tyexp6b55wq","run":"r_1m7kza8vb758ctjq","agent":"flow-elsewhere-8030","token":1,"data":{"deadline":1794893566489}}]');
INSERT INTO "journal" VALUES(114,1794892966531,'[{"kind":"run_ended","run":"r_1m7kza80h7hybwke","data":{"reason":"called off"}}]');
CREATE TABLE lane (
    id INTEGER PRIMARY KEY,
    role TEXT NOT NULL,
    services TEXT NOT NULL,
    UNIQUE (role, services)
);
INSERT INTO "lane" VALUES(1,'','["printer"]');
INSERT INTO "lane" VALUES(2,'','[]');
INSERT INTO "lane" VALUES(3,'','["parked"]');
INSERT INTO "lane" VALUES(4,'writer','[]');
INSERT INTO "lane" VALUES(5,'expert','[]');
INSERT INTO "lane" VALUES(6,'flow','[]');
INSERT INTO "lane" VALUES(7,'step','[]');
CREATE TABLE lease (
    task TEXT PRIMARY KEY NOT NULL,
    token INTEGER NOT NULL,
    agent TEXT NOT NULL,
    granted_at INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    length INTEGER,
    idle INTEGER,
    ask_every INTEGER NOT NULL,
    ask_wait INTEGER NOT NULL,
    grace INTEGER NOT NULL,
    command TEXT NOT NULL,
    judged INTEGER NOT NULL,
    stalled_at INTEGER,
    renewed_at INTEGER NOT NULL,
    checkin_at INTEGER,
    progress REAL,
    note TEXT NOT NULL
, due_at INTEGER, own INTEGER) WITHOUT ROWID;
INSERT INTO "lease" VALUES('t_1m7kza7ngbhadx67',1,'ben',1794892963515,1794921763515,NULL,NULL,300000,30000,10000,'',0,NULL,1794892963515,NULL,NULL,'',1794893293515,NULL);
INSERT INTO "lease" VALUES('t_1m7kza7pwc2p757j',1,'ada',1794892963568,1794921763568,NULL,25200000,300000,30000,10000,'',0,NULL,1794892963580,1794892963580,0.5,'half of it',1794893293568,NULL);
INSERT INTO "lease" VALUES('t_1m7kza7rw6tdpp5m',1,'bob',1794892963628,1794921763628,60000,NULL,300000,30000,10000,'',0,NULL,1794892963628,NULL,NULL,'',1794893023628,NULL);
INSERT INTO "lease" VALUES('t_1m7kza7sj1zxkne3',1,'eve',1794892963660,1794921763660,NULL,NULL,100,20,25200000,'',28,1794892963800,1794892963660,NULL,NULL,'',NULL,NULL);
INSERT INTO "lease" VALUES('t_4q0b6tyexp6b55wq',1,'flow-elsewhere-8030',1794892966489,1794893566489,30000,NULL,600000,30000,10000,'',0,NULL,1794892966489,NULL,NULL,'',1794892996489,NULL);
INSERT INTO "lease" VALUES('t_am44btt1wzcjqax7',1,'elsewhere:8027.1217849.0a0b0c0d',1794892964197,1794894769197,60000,NULL,1805000,30000,10000,'ffn9056nx4yspmje.1',0,NULL,1794892964197,NULL,NULL,'',1794893024197,NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('kept.clock_set','00000000-0000-4000-8000-000000000000/time:[4026531834] 1794880785408');
INSERT INTO "meta" VALUES('kept.clock_slept','00000000-0000-4000-8000-000000000000/time:[4026531834] 0');
INSERT INTO "meta" VALUES('schema_version','4');
CREATE TABLE question (
    id TEXT PRIMARY KEY NOT NULL,
    task TEXT NOT NULL,
    run TEXT,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    options TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    asked_by TEXT NOT NULL,
    closed_at INTEGER,
    choice TEXT,
    answer TEXT NOT NULL,
    answered_by TEXT NOT NULL,
    command TEXT NOT NULL
, waited INTEGER NOT NULL DEFAULT 0);
INSERT INTO "question" VALUES('q_1m7kza7g0e5aq36w.1','t_1m7kza7g0e5aq36w',NULL,'agent','This is too much for one.','[{"key":"split","label":"Split task into smaller subtasks","act":"split"},{"key":"skip","label":"Skip task and continue","act":"skip"}]',1794892963334,'ada',1794892963340,'split','','cleo','sh6wge27746cpw02.a',1);
INSERT INTO "question" VALUES('q_@locked.1','',NULL,'service_needs_help','Service locked refuses who we say we are (PermissionError: 401). Calls that meet this are given up. How should we proceed?','[{"key":"mended","label":"It is mended: go on, and ask again if it happens again","act":"probe"},{"key":"later","label":"Ask again in an hour, if it still happens","act":"quiet"}]',1794892963451,'allswell',NULL,NULL,'','','',0);
INSERT INTO "question" VALUES('q_1m7kza7m84gprxhy.1','t_1m7kza7m84gprxhy','r_1m7kza7kw8h1d73v','agent','Which table?','[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]',1794892963477,'ben',NULL,NULL,'','','',1);
INSERT INTO "question" VALUES('q_1m7kza7mw957tb1n.1','t_1m7kza7mw957tb1n',NULL,'agent','And this one?','[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]',1794892963496,'ben',1794892963500,'retry','the second','cleo','sh6wge27746cpw02.1b',1);
INSERT INTO "question" VALUES('q_1m7kza7ngbhadx67.1','t_1m7kza7ngbhadx67',NULL,'agent','By the way?','[{"key":"retry","label":"Try again as it is","act":"retry"},{"key":"skip","label":"Skip task and continue","act":"skip"}]',1794892963526,'ben',NULL,NULL,'','','',0);
CREATE TABLE "ready" (
    lane INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    task TEXT NOT NULL,
    PRIMARY KEY (lane, rank, task)
) WITHOUT ROWID;
INSERT INTO "ready" VALUES(2,4398048305996963340,'t_1m7kza7g89pkbntb');
INSERT INTO "ready" VALUES(2,4398048305996963488,'t_1m7kza7mw957tb1n');
INSERT INTO "ready" VALUES(2,4398048305996963725,'t_1m7kza7w866jsyy8');
INSERT INTO "ready" VALUES(2,4398048305996963780,'t_1m7kza7y035rrejz');
INSERT INTO "ready" VALUES(2,4398048305996963868,'t_1m7kza80wdmp57tt');
INSERT INTO "ready" VALUES(3,4398048305996963360,'t_1m7kza7gg33twvne');
INSERT INTO "ready" VALUES(3,4398048305996963365,'t_1m7kza7h4eqdamq8');
INSERT INTO "ready" VALUES(4,4398035111857430232,'t_tk3rhn9rby1h9em9');
INSERT INTO "ready" VALUES(5,4398048305996963604,'t_1m7kza7r02b3r1df');
CREATE TABLE run (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    deadline INTEGER,
    ended_at INTEGER,
    reason TEXT NOT NULL,
    command TEXT NOT NULL
, asked INTEGER NOT NULL DEFAULT 0, stands_since INTEGER, stood INTEGER NOT NULL DEFAULT 0, moves INTEGER NOT NULL DEFAULT 0);
INSERT INTO "run" VALUES('r_1m7kza7kw8h1d73v','stands',1794892963460,1794903763460,NULL,'','sh6wge27746cpw02.16',1,1794892963477,0,1);
INSERT INTO "run" VALUES('r_1m7kza7xgds6ve5x','night',1794892963768,1794914563768,NULL,'','sh6wge27746cpw02.2a',0,NULL,0,0);
INSERT INTO "run" VALUES('r_1m7kza7y910ezp6h','over',1794892963792,NULL,1794892963828,'enough','sh6wge27746cpw02.2e',0,NULL,0,0);
INSERT INTO "run" VALUES('r_1m7kza80h7hybwke','ends',1794892963860,NULL,1794892966531,'called off','ccqhe64ywtf2thyt.1',0,NULL,0,0);
INSERT INTO "run" VALUES('r_kept','digest',1794892964197,NULL,NULL,'','ffn9056nx4yspmje.1',0,NULL,0,0);
INSERT INTO "run" VALUES('r_1m7kza8vb758ctjq','chain',1794892964732,1794895364732,NULL,'','open.r_1m7kza8vb758ctjq',0,NULL,0,0);
CREATE TABLE "service" (
    id TEXT PRIMARY KEY NOT NULL,
    state TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "service" VALUES('broken','{"id":"broken","state":{"failures":3,"generation":1,"open_until":1794892993449},"since":1794892963449,"command":"sh6wge27746cpw02.12"}');
INSERT INTO "service" VALUES('locked','{"id":"locked","questions":1,"command":"sh6wge27746cpw02.15","causes":{"auth":1}}');
INSERT INTO "service" VALUES('parked','{"id":"parked","state":{"parked_until":1794900163381}}');
CREATE TABLE spread (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    replaced_by TEXT NOT NULL
);
INSERT INTO "spread" VALUES(1,'r_1m7kza80h7hybwke','cancelled','called off','[]');
CREATE TABLE task (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    run TEXT,
    role TEXT NOT NULL,
    lane INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    spec TEXT NOT NULL,
    record TEXT NOT NULL,
    payload TEXT NOT NULL,
    result TEXT
, rank INTEGER NOT NULL DEFAULT 0, attempt TEXT);
INSERT INTO "task" VALUES('t_1m7kza7ec4wq7vhz','done',NULL,'',1,0,'done',1794892963281,1794892963292,'{"services":["printer"],"policy":{"retry":{}}}','{"token":1,"reason":"completed","ended_by":"sh6wge27746cpw02.2"}','{"pages":3}','{"pages":[1,2,3]}',4398048305996963281,'["ada",1794892963288,1794892963292,"done","sh6wge27746cpw02.2","completed"]');
INSERT INTO "task" VALUES('t_1m7kza7f06fw2vqh','failed',NULL,'',2,0,'failed',1794892963304,1794892963316,'{}','{"token":1,"failures":{"validation":1},"handover":{"reason":"failed:validation","agent":"ada","message":"no such table"},"reason":"validation is not retried","ended_by":"sh6wge27746cpw02.5"}','null',NULL,4398048305996963304,'["ada",1794892963315,1794892963316,"failed:validation","sh6wge27746cpw02.5","no such table"]');
INSERT INTO "task" VALUES('t_1m7kza7fc3gn4dzg','skipped',NULL,'',2,0,'skipped',1794892963309,1794892963328,'{"needs":["t_1m7kza7f06fw2vqh"],"policy":{"retry":{}}}','{"reason":"t_1m7kza7f06fw2vqh was failed"}','null',NULL,4398048305996963309,NULL);
INSERT INTO "task" VALUES('t_1m7kza7fn2c718dv','cancelled',NULL,'',2,0,'cancelled',1794892963320,1794892963326,'{}','{"reason":"not wanted any more","ended_by":"sh6wge27746cpw02.7"}','null',NULL,4398048305996963320,NULL);
INSERT INTO "task" VALUES('t_1m7kza7g0e5aq36w','too big',NULL,'',2,0,'split',1794892963329,1794892963340,'{}','{"token":1,"questions":1,"asked_by":"sh6wge27746cpw02.9","notes":["To “This is too much for one.”, a human chose split (Split task into smaller subtasks)"],"handover":{"reason":"asked","agent":"ada","message":"This is too much for one."},"reason":"split into 1","replaced_by":["t_1m7kza7g89pkbntb"],"ended_by":"sh6wge27746cpw02.a"}','null',NULL,4398048305996963329,'["ada",1794892963330,1794892963334,"asked","sh6wge27746cpw02.9","This is too much for one."]');
INSERT INTO "task" VALUES('t_1m7kza7g89pkbntb','part',NULL,'',2,0,'open',1794892963340,NULL,'{}','{}','1',NULL,4398048305996963340,NULL);
INSERT INTO "task" VALUES('t_1m7kza7gg33twvne','needs the parked',NULL,'',3,0,'open',1794892963360,NULL,'{"services":["parked"],"policy":{"retry":{}}}','{}','null',NULL,4398048305996963360,NULL);
INSERT INTO "task" VALUES('t_1m7kza7h4eqdamq8','parked by',NULL,'',3,0,'open',1794892963365,NULL,'{"services":["parked"],"policy":{"retry":{}}}','{"token":1,"handover":{"reason":"parked","agent":"ada","message":"429"}}','null',NULL,4398048305996963365,'["ada",1794892963372,1794892963381,"parked","sh6wge27746cpw02.d","429"]');
INSERT INTO "task" VALUES('t_1m7kza7m84gprxhy','asks','r_1m7kza7kw8h1d73v','',2,0,'open',1794892963464,NULL,'{}','{"token":1,"questions":1,"asked_by":"sh6wge27746cpw02.18","handover":{"reason":"asked","agent":"ben","message":"Which table?"}}','null',NULL,4398048305996963464,'["ben",1794892963469,1794892963477,"asked","sh6wge27746cpw02.18","Which table?"]');
INSERT INTO "task" VALUES('t_1m7kza7mw957tb1n','answered',NULL,'',2,0,'open',1794892963488,NULL,'{}','{"token":1,"questions":1,"asked_by":"sh6wge27746cpw02.1a","notes":["To “And this one?”, a human chose retry (Try again as it is): the second"],"handover":{"reason":"asked","agent":"ben","message":"And this one?","answer":"retry"}}','null',NULL,4398048305996963488,'["ben",1794892963490,1794892963496,"asked","sh6wge27746cpw02.1a","And this one?"]');
INSERT INTO "task" VALUES('t_1m7kza7ngbhadx67','asks in passing',NULL,'',2,0,'open',1794892963508,NULL,'{"policy":{"timeout":28800000,"retry":{}}}','{"questions":1,"asked_by":"sh6wge27746cpw02.1d"}','null',NULL,4398048305996963508,NULL);
INSERT INTO "task" VALUES('t_tk3rhn9rby1h9em9','ready',NULL,'writer',4,3,'open',1794892963544,NULL,'{"policy":{"retry":{}},"digest":"0f8ead3bd200f1c1"}','{}','{"file":"notes.md"}',NULL,4398035111857430232,NULL);
INSERT INTO "task" VALUES('t_1m7kza7pwc2p757j','held',NULL,'',2,0,'open',1794892963548,NULL,'{"policy":{"timeout":28800000,"idle":25200000,"retry":{}}}','{}','null',NULL,4398048305996963548,NULL);
INSERT INTO "task" VALUES('t_1m7kza7q0bnexqdk','waiting',NULL,'',2,0,'open',1794892963560,NULL,'{"needs":["t_1m7kza7pwc2p757j"],"critical":true,"policy":{"retry":{}}}','{}','null',NULL,4398048305996963560,NULL);
INSERT INTO "task" VALUES('t_1m7kza7r02b3r1df','request',NULL,'expert',5,0,'open',1794892963604,NULL,'{"policy":{"timeout":18000000,"retry":{"max_attempts":1,"retries":0}},"limit_at":1794910963604,"origin":{"task":"t_1m7kza7pwc2p757j","token":1,"agent":"ada","command":"sh6wge27746cpw02.22"}}','{}','"look at this"',NULL,4398048305996963604,NULL);
INSERT INTO "task" VALUES('t_1m7kza7rw6tdpp5m','leased',NULL,'',2,0,'open',1794892963612,NULL,'{"policy":{"timeout":28800000,"retry":{}}}','{}','null',NULL,4398048305996963612,NULL);
INSERT INTO "task" VALUES('t_1m7kza7sj1zxkne3','watched',NULL,'',2,0,'open',1794892963644,NULL,'{"policy":{"timeout":28800000,"checkpoint_interval":100,"checkpoint_timeout":20,"stall_threshold":1,"recovery_grace":25200000}}','{}','null',NULL,4398048305996963644,NULL);
INSERT INTO "task" VALUES('t_1m7kza7tmbj4e1p7','delayed',NULL,'',2,0,'open',1794892963674,NULL,'{"policy":{"retry":{}},"not_before":1794907363668}','{}','null',NULL,4398048305996963674,NULL);
INSERT INTO "task" VALUES('t_1m7kza7v0c8gkh86','tried again',NULL,'',2,0,'open',1794892963684,NULL,'{"policy":{"retry":{"retries":3}}}','{"token":1,"handover":{"reason":"parked","agent":"ada","message":"503"}}','null',NULL,4398048305996963684,'["ada",1794892963701,1794892963713,"parked","sh6wge27746cpw02.27","503"]');
INSERT INTO "task" VALUES('t_1m7kza7w866jsyy8','late',NULL,'',2,0,'open',1794892963725,NULL,'{}','{"token":1,"handover":{"reason":"released","agent":"ada","message":"not now"}}','null',NULL,4398048305996963725,'["ada",1794892963740,1794892963753,"released","sh6wge27746cpw02.29","not now"]');
INSERT INTO "task" VALUES('t_1m7kza7y035rrejz','of a run','r_1m7kza7xgds6ve5x','',2,0,'open',1794892963780,NULL,'{}','{}','null',NULL,4398048305996963780,NULL);
INSERT INTO "task" VALUES('t_1m7kza7yr8h9e6ae','of a run that ended','r_1m7kza7y910ezp6h','',2,0,'cancelled',1794892963811,1794892963846,'{}','{"reason":"enough"}','null',NULL,4398048305996963811,NULL);
INSERT INTO "task" VALUES('t_1m7kza80wdmp57tt','of a run that ends','r_1m7kza80h7hybwke','',2,0,'open',1794892963868,NULL,'{}','{}','null',NULL,4398048305996963868,NULL);
INSERT INTO "task" VALUES('t_am44btt1wzcjqax7','digest','r_kept','flow',6,0,'open',1794892964197,NULL,'{"policy":{"timeout":1805000,"checkpoint_interval":1805000,"stall_threshold":1073741824},"flow":true}','{}','null',NULL,4398048305996964197,NULL);
INSERT INTO "task" VALUES('t_njnrreknqkwn38rt','fetch','r_kept','step',7,0,'done',1794892964208,1794892964208,'{}','{"token":1,"reason":"completed","ended_by":"njnrreknqkwn38rt.1"}','{"args":["a"]}','"A"',4398048305996964208,'["elsewhere:8027.1217849.0a0b0c0d",1794892964208,1794892964208,"done","njnrreknqkwn38rt.1","completed"]');
INSERT INTO "task" VALUES('t_4rvx0q337d25wfxg','fetch','r_kept','step',7,0,'done',1794892964212,1794892964212,'{}','{"token":1,"reason":"completed","ended_by":"4rvx0q337d25wfxg.1"}','{"args":["b"]}','"B"',4398048305996964212,'["elsewhere:8027.1217849.0a0b0c0d",1794892964212,1794892964212,"done","4rvx0q337d25wfxg.1","completed"]');
INSERT INTO "task" VALUES('t_2g9sdspwwm5hb2dj','slow','r_1m7kza8vb758ctjq','step',7,0,'done',1794892964740,1794892966471,'{"needs":["t_7c167p5bfwkhdvbx"],"policy":{"timeout":1500,"retry":{"retries":1,"timeouts":1}},"digest":"1e13f2e70a8da4b3","unblocks":2}','{"token":2,"timeouts":1,"handover":{"reason":"agent_timeout","agent":"flow-elsewhere-8030"},"reason":"completed","ended_by":"k3jj3wz2j1b3dhcx.3"}','{"flow":"chain","run":"r_1m7kza8vb758ctjq","home":"@FOLDER@/.allswell","folder":"@FOLDER@","step":"slow","id":"slow","work":{"kind":"run","argv":["sh","slow.sh"]},"timeouts":{"flow":2400000,"step":600000,"llm_call":120000,"tool":300000}}','{"step":"slow","exit_code":0}',4398048305996844740,'["flow-elsewhere-8030",1794892964815,1794892966318,"agent_timeout","",""]');
INSERT INTO "task" VALUES('t_4q0b6tyexp6b55wq','cut','r_1m7kza8vb758ctjq','step',7,0,'open',1794892964740,NULL,'{"needs":["t_2g9sdspwwm5hb2dj"],"policy":{"timeout":600000,"checkpoint_interval":600000,"retry":{"retries":0}},"digest":"356019577d6b54ed","unblocks":1}','{}','{"flow":"chain","run":"r_1m7kza8vb758ctjq","home":"@FOLDER@/.allswell","folder":"@FOLDER@","step":"cut","id":"cut","work":{"kind":"run","argv":["sh","cut.sh","{{ steps.first.stdout }}"]},"timeouts":{"flow":2400000,"step":600000,"llm_call":120000,"tool":300000},"uses":{"first":"t_7c167p5bfwkhdvbx"}}',NULL,4398048305996904740,NULL);
INSERT INTO "task" VALUES('t_7c167p5bfwkhdvbx','first','r_1m7kza8vb758ctjq','step',7,0,'done',1794892964740,1794892964802,'{"policy":{"timeout":600000,"checkpoint_interval":600000,"retry":{"retries":0}},"digest":"6e372d399f7e82dd","unblocks":3}','{"token":1,"reason":"completed","ended_by":"k3jj3wz2j1b3dhcx.2"}','{"flow":"chain","run":"r_1m7kza8vb758ctjq","home":"@FOLDER@/.allswell","folder":"@FOLDER@","step":"first","id":"first","work":{"kind":"run","argv":["sh","-c","echo first | tee -a ran.txt first.txt"]},"timeouts":{"flow":2400000,"step":600000,"llm_call":120000,"tool":300000},"outputs":[{"name":"text","path":"first.txt"}]}','{"step":"first","stdout":"first","exit_code":0,"artifacts":[{"name":"text","path":"first.txt","sha256":"b640e840b19d378660b32fb51ae18d67dccb4a8596a29e7bd72c1b2ae5928f41","bytes":6}]}',4398048305996784740,'["flow-elsewhere-8030",1794892964753,1794892964802,"done","k3jj3wz2j1b3dhcx.2","completed"]');
INSERT INTO "task" VALUES('t_8thwrjgrjm3p7q9a','last','r_1m7kza8vb758ctjq','step',7,0,'open',1794892964740,NULL,'{"needs":["t_4q0b6tyexp6b55wq"],"policy":{"timeout":600000,"checkpoint_interval":600000,"retry":{"retries":0}},"digest":"0d1431c2cd46cc56"}','{}','{"flow":"chain","run":"r_1m7kza8vb758ctjq","home":"@FOLDER@/.allswell","folder":"@FOLDER@","step":"last","id":"last","work":{"kind":"run","argv":["sh","-c","echo last >> ran.txt"]},"timeouts":{"flow":2400000,"step":600000,"llm_call":120000,"tool":300000}}',NULL,4398048305996964740,NULL);
CREATE TABLE timer (
    owner TEXT PRIMARY KEY NOT NULL,
    due_at INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "timer" VALUES('t_1m7kza7sj1zxkne3',1794892966580);
INSERT INTO "timer" VALUES('r_1m7kza8vb758ctjq',1794895364732);
INSERT INTO "timer" VALUES('t_1m7kza7tmbj4e1p7',1794907363668);
INSERT INTO "timer" VALUES('t_1m7kza7r02b3r1df',1794910963604);
INSERT INTO "timer" VALUES('t_1m7kza7v0c8gkh86',1794914563713);
INSERT INTO "timer" VALUES('r_1m7kza7xgds6ve5x',1794914563768);
CREATE TABLE wait (
    task TEXT NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (task, kind, target)
) WITHOUT ROWID;
INSERT INTO "wait" VALUES('t_1m7kza7m84gprxhy','question','q_1m7kza7m84gprxhy.1');
INSERT INTO "wait" VALUES('t_1m7kza7q0bnexqdk','need','t_1m7kza7pwc2p757j');
INSERT INTO "wait" VALUES('t_8thwrjgrjm3p7q9a','need','t_4q0b6tyexp6b55wq');
CREATE INDEX task_name ON task (name);
CREATE INDEX task_open ON task (id) WHERE ended_at IS NULL;
CREATE INDEX task_run ON task (run, ended_at, id) WHERE run IS NOT NULL;
CREATE INDEX timer_due ON timer (due_at);
CREATE INDEX wait_target ON wait (target);
CREATE INDEX lease_command ON lease (command) WHERE command <> '';
CREATE INDEX question_open ON question (task) WHERE closed_at IS NULL;
CREATE INDEX lease_due ON lease (due_at);
CREATE INDEX task_ended_badly ON task (state, id) WHERE state <> 'open' AND state <> 'done';
CREATE VIEW event AS
SELECT last - json_array_length(events) + 1 + told.key AS id, at,
       json_extract(told.value, '$.kind') AS kind, json_extract(told.value, '$.task') AS task,
       json_extract(told.value, '$.run') AS run, json_extract(told.value, '$.agent') AS agent,
       json_extract(told.value, '$.token') AS token, coalesce(json_extract(told.value, '$.data'), '{}') AS data
FROM journal, json_each(events) AS told;
COMMIT;
