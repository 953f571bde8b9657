"""Which passages an identifier finds: a corpus of rows that are near neighbours of each other, and for each question
the exact set of rows that it must find, no more and no fewer.

Rows are named FAMILY.NAME. A question that names no identifier finds nothing here: the words are another leg's work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.database import connect
from worker.embedded import Services

CORPUS: dict[str, tuple[str, str]] = {
    # Error codes.
    "pump.4012": ("english", "Fault E-4012: the pump cannot turn."),
    "pump.4013": ("english", "Fault E-4013: pressure has dropped to 4012 hPa."),
    "pump.4012-fr": ("french", "Défaut E-4012 : la pompe ne tourne plus."),
    "pump.4013-fr": ("french", "Voir le défaut E\u20114013 (pompe à l'arrêt)."),
    "pump.both": ("english", "Two faults, E-4012/E-4013, have one cause."),
    "pump.plain": ("english", "Older manuals write E4012 for it."),
    "pump.long": ("english", "Fault E-40120 belongs to the E-401 family, not to 4012."),
    "pump.other": ("english", "Fault F-4012 is about the fan, fault XE-4012 about the mixer."),
    "pump.cyrillic": ("simple", "Ошибка Е-4012 записана кириллицей."),
    "code.quoted": ("english", 'The log says "E-5100", then (E-5200), then [E-5300]; last comes E-5400.'),
    "code.markup": ("english", "Press **E-5500** or `E-5600` or _E-5700_ to see more."),
    "code.list": ("english", "Seen together: E-6001,E-6002;E-6003|E-6004."),
    "code.dash": ("english", "The code E-6100\u2014a rare one\u2014needs a restart."),
    "code.range": ("english", "Codes E-6200\u2013E-6209 are reserved."),
    "code.note": ("english", "Read about E-6300\u00b9 in the appendix."),
    "code.colon": ("english", "level=error code:E-6400 host=alpha"),
    "code.soft": ("english", "Hyphenated by the typesetter: E-65\u00ad00."),
    "code.wide": ("simple", "コード\uff25\uff0d\uff16\uff16\uff10\uff10を参照。"),
    "code.trade": ("english", "The Pumpmaster X210\u2122 is quieter than the X21."),
    "cjk.zh": ("simple", "错误E-7012发生,请重启水泵。"),
    "cjk.ja": ("simple", "ポンプでエラーE-7012が出た。"),
    "cjk.ko": ("simple", "오류 E-7012가 발생했습니다."),
    "cjk.zh-next": ("simple", "错误E-7013发生。"),
    # Case numbers, alerts, stock numbers.
    "case.118": ("english", "The agreement REF-2024-118 has been signed."),
    "case.119": ("english", "The agreement REF-2024-119 has been signed."),
    "case.118-fr": ("french", "L'accord de référence REF-2024-118 est signé."),
    "case.invoice": ("english", "Invoice INV-2024-118 is overdue."),
    "case.spaced": ("english", "The annexe of REF 2024-118 is missing."),
    "tls.code": ("english", "The gateway raised TLS_HANDSHAKE_FAILED twice."),
    "tls.prose": ("english", "A TLS handshake failed, said the operator; TLS_HANDSHAKE was slow."),
    "sku.b": ("english", "SKU 8842-B is on the shelf."),
    "sku.c": ("english", "SKU 8842-C is on the shelf."),
    "sku.bare": ("english", "Twelve boxes of 8842-B were counted."),
    "sku.joined": ("english", "Label: SKU-8842-B."),
    "sku.digits": ("english", "SKU 8842 is a box of 12."),
    "part.123": ("english", "Use the gasket AB/123-4."),
    "part.124": ("english", "Use the gasket AB/124-4."),
    "part.other": ("english", "Use the gasket CD/123-4."),
    "order.a": ("english", "Order 10023456 was shipped."),
    "order.b": ("english", "Order 10023457 was shipped."),
    "order.po": ("english", "PO 10023456 was approved."),
    "issue.123": ("english", "Fixed in issue #123."),
    "issue.1234": ("english", "Fixed in issue #1234."),
    # Versions.
    "version.2.3.1": ("english", "Release v2.3.1 came out on Monday."),
    "version.2.3.10": ("english", "Release v2.3.10 came out on Tuesday."),
    "version.2.31": ("english", "Release v2.31 came out on Wednesday."),
    "version.bare": ("french", "La version 2.3.1 est sortie."),
    "version.candidate": ("english", "Release v2.3.1-rc1 is a candidate."),
    "version.23.1": ("english", "Release v23.1 is old."),
    # Programming.
    "lang.cpp": ("english", "The driver is written in C++."),
    "lang.c": ("english", "The driver is written in C, with a note on vitamin C."),
    "lang.cpp-fr": ("french", "Le pilote est écrit en C++."),
    "lang.cpp17": ("english", "The driver needs C++17."),
    "lang.csharp": ("english", "The dialog is written in C#."),
    "lang.fsharp": ("english", "The solver is written in F#, the intro is in F sharp."),
    "lang.slash": ("english", "Bindings for C++/C# exist."),
    "lang.net": ("english", "It runs on .NET since spring."),
    "lang.nonet": ("english", "The net income... net of taxes; see example.net for more."),
    "call.foo": ("english", "First call foo_bar() and leave."),
    "call.foobar2": ("english", "First call foo_bar2() and leave."),
    "call.prose": ("english", "The foo bar opens at nine."),
    "call.pg": ("english", "Rows of pg_stat_statements are reset by hand."),
    "call.pg-other": ("english", "Rows of pg_stat_activity are live."),
    "call.vector": ("english", "Memory grows with std::vector<int>."),
    "call.string": ("english", "Memory grows with std::string; a vector of std form."),
    "call.method2": ("english", "Then obj.method2() returns."),
    "call.method21": ("english", "Then obj.method21() returns."),
    "call.dunder": ("english", "Python calls __init__ first."),
    "call.init": ("english", "The init process has number one."),
    # Paths and addresses.
    "path.foo": ("english", "Missing: /usr/lib/x86_64/libfoo.so.1"),
    "path.foo2": ("english", "Missing: /usr/lib/x86_64/libfoo.so.12"),
    "path.bar": ("english", "Missing: /usr/lib/x86_64/libbar.so.1"),
    "path.conf": ("english", "Edit /etc/nginx/nginx.conf as root."),
    "path.conf-bak": ("english", "Delete /etc/nginx/nginx.conf.bak as root."),
    "path.windows": ("english", r"Installed in C:\Program Files\app2 by default."),
    "path.windows-3": ("english", r"Installed in C:\Program Files\app3 by default."),
    "path.windows-d": ("english", r"Installed in D:\Program Files\app2 by hand."),
    "mail.jane": ("english", "Write to jane.doe@example.org."),
    "mail.janedoe": ("english", "Write to janedoe@example.org."),
    "mail.com": ("english", "Write to jane.doe@example.com."),
    "mail.plus": ("french", "Écrivez à <jane.doe+test@example.org>, merci."),
    "mail.link": ("english", "Click mailto:bob.ray@example.org now."),
    "url.42": ("english", "See https://www.example.org/docs/page?id=42."),
    "url.43": ("english", "See https://www.example.org/docs/page?id=43."),
    "url.v2": ("english", "See http://example.org/docs/v2/ (archived)."),
    "url.v3": ("english", "See http://example.org/docs/v3/ (archived)."),
    "ip.10": ("english", "The host 192.168.1.10 is up."),
    "ip.1": ("english", "The host 192.168.1.1 is up."),
    "ip.100": ("english", "The host 192.168.1.100 is up."),
    "ip.110": ("english", "The host 192.168.11.0 is up."),
    "ip.port": ("english", "Listening at 192.168.1.10:8080."),
    "ip.word": ("french", "L'hôte IP 192.168.1.10 répond."),
    "ip6.a": ("english", "Route to 2001:db8::ff00:42:8329 lost."),
    "ip6.long": ("english", "Route to 2001:0DB8:0000:0000:0000:FF00:0042:8329 lost."),
    "ip6.b": ("english", "Route to 2001:db8::ff00:42:832 lost."),
    "ip6.c": ("english", "Route to 2001:db8::ff:42:8329 lost."),
    "mac.colons": ("english", "Card 00:1A:2B:3C:4D:5E answers."),
    "mac.dashes": ("english", "Card 00-1a-2b-3c-4d-5e answers."),
    "mac.next": ("english", "Card 00:1A:2B:3C:4D:5F answers."),
    "uuid.a": ("english", "Job 550e8400-e29b-41d4-a716-446655440000 done."),
    "uuid.bare": ("english", "Job 550E8400E29B41D4A716446655440000 done."),
    "uuid.b": ("english", "Job 550e8400-e29b-41d4-a716-446655440001 done."),
    "git.full": ("english", "Broken since 3f2a9bc81d0e4f5a6b7c8d9e0f1a2b3c4d5e6f70."),
    "git.short": ("english", "Broken since 3f2a9bc."),
    "git.next": ("english", "Broken since 3f2a9bd."),
    "cve.5": ("english", "Patched: CVE-2024-12345."),
    "cve.6": ("english", "Patched: CVE-2024-12346."),
    "cve.50": ("english", "Patched: CVE-2024-123450."),
    "cve.fr": ("french", "La faille CVE\u20112024\u201112345 est corrigée."),
    # Numbers that people group.
    "iban.grouped": ("english", "Pay to IBAN FR76 3000 6000 0112 3456 7890 189 today."),
    "iban.joined": ("french", "Virement sur FR7630006000011234567890189."),
    "iban.next": ("english", "Pay to FR76 3000 6000 0112 3456 7890 190."),
    "iban.gb": ("english", "Pay to GB29 NWBK 6016 1331 9268 19 in sterling."),
    "phone.intl": ("english", "Call +33 1 23 45 67 89 at any time."),
    "phone.dots": ("french", "Appelez le 01.23.45.67.89 en semaine."),
    "phone.joined": ("french", "Tél. 0123456789"),
    "phone.trunk": ("french", "Tél. : +33 (0)1 23 45 67 89, 24 h/24"),
    "phone.spaces": ("french", "Tél. 01\u00a023\u00a045\u00a067\u00a089 24 h/24"),
    "phone.belgian": ("french", "Bruxelles : +32 1 23 45 67 89"),
    "phone.next": ("french", "Appelez le 01.23.45.67.98 en semaine."),
    "phone.us": ("english", "Call (415) 555-0132 at night."),
    "phone.us-intl": ("english", "Call +1-415-555-0132 at night."),
    "phone.us-next": ("english", "Call 415.555.0133 at night."),
    "isbn.dashes": ("french", "ISBN 978-2-07-036822-8, en poche."),
    "isbn.joined": ("english", "Also as 9782070368228."),
    "isbn.spaces": ("english", "ISBN 978 2 07 036822 8 in print."),
    "isbn.next": ("english", "ISBN 978-2-07-036823-5 in print."),
    "isbn.ten": ("english", "ISBN 2-07-036822-X, first printing."),
    "siret.spaces": ("french", "SIRET 732 829 320 00074"),
    "siret.joined": ("french", "SIRET 73282932000074"),
    "siret.next": ("french", "SIRET 732 829 320 00082"),
    "date.6": ("english", "Backed up on 2024-05-06."),
    "date.stamp": ("english", "2024-05-06T10:30:00Z backup finished"),
    "date.7": ("english", "Backed up on 2024-05-07."),
    "date.june": ("english", "Backed up on 2024-06-05."),
    "date.slashes": ("english", "Backed up on 2024/05/06, late."),
    "date.fr": ("french", "Sauvegarde du 06/05/2024."),
    "money.en": ("english", "The fee is €1,250.00 a year."),
    "money.fr": ("french", "Le forfait est de 1\u202f250,00 € par an."),
    "money.de": ("simple", "Der Preis: 1.250,00 €."),
    "money.more": ("english", "The fee is €3,250.00 a year."),
    "money.less": ("english", "The fee is €250.00 a year."),
    # Law.
    "law.L121-3": ("french", "L'article L. 121-3 fixe le délai."),
    "law.L121-3-joined": ("french", "Vu l'article L121-3 du code."),
    "law.L12-13": ("french", "L'article L. 12-13 fixe le montant."),
    "law.R121-3": ("french", "L'article R. 121-3 fixe la forme."),
    "law.L121-30": ("french", "L'article L. 121-30 fixe la peine."),
    "law.L121-3-1": ("french", "L'article L. 121-3-1 fixe le recours."),
    "law.1240-1": ("french", "L'article 1240-1 du code civil."),
    "law.1240": ("french", "L'article 1240 du code civil."),
    "law.1241": ("french", "L'article 1241 du code civil."),
    "law.823": ("simple", "Anspruch aus § 823 BGB."),
    "law.823-joined": ("simple", "Anspruch aus §823 BGB."),
    "law.826": ("simple", "Anspruch aus § 826 BGB; Blatt 823."),
    "law.IV": ("english", "Article IV of the treaty governs disputes."),
    "law.VI": ("english", "Article VI of the treaty governs ratification."),
    "law.V": ("english", "Article V of the treaty governs amendments."),
    "law.particle": ("english", "A particle IV line was fitted."),
    "law.decree": ("french", "Décret n° 2023-1394 du 30 décembre."),
    "law.decree-next": ("french", "Décret n° 2023-1395 du 30 décembre."),
    "rfc.7231": ("english", "As RFC 7231 requires."),
    "rfc.7232": ("english", "As RFC 7232 requires, in 7231 words."),
    "year.2024": ("english", "In 2024 sales rose."),
    # Matter and measure.
    "chem.h2so4": ("english", "Dilute H2SO4 slowly."),
    "chem.subscript": ("french", "Diluez H₂SO₄ lentement."),
    "chem.h2so3": ("english", "Dilute H2SO3 slowly."),
    "chem.24d": ("english", "Spray 2,4-dichlorophenoxyacetic acid."),
    "chem.34d": ("english", "Spray 3,4-dichlorophenoxyacetic acid."),
    "chem.25d": ("english", "Spray 2,5-dichlorophenoxyacetic acid."),
    "chem.glucose": ("english", "Glucose is C6H12O6."),
    "chem.ethanol": ("english", "Ethanol is C2H6O."),
    "greek.alpha": ("english", "Levels of α2-macroglobulin rose."),
    "greek.beta": ("english", "Levels of β2-macroglobulin rose."),
    "tag.covid": ("english", "Trending: #Covid19"),
    "tag.dash": ("french", "La COVID-19 recule."),
    "tag.other": ("english", "Trending: #Covid20"),
    "unit.12V": ("english", "A 12V battery."),
    "unit.12 V": ("french", "Une batterie de 12 V."),
    "unit.24V": ("english", "A 24V battery."),
    "unit.112V": ("english", "A 112 V rail."),
    "unit.12W": ("english", "A 12 W lamp, part 12 of the kit."),
    "unit.3.5kW": ("english", "A 3.5kW heater."),
    "unit.3,5kW": ("french", "Un chauffage de 3,5 kW."),
    "unit.5kW": ("english", "A 5kW heater."),
    "unit.10mm": ("english", "A 10mm bolt."),
    "unit.10um": ("english", "A 10 µm filter."),
    "temp.-40": ("english", "Tested at -40°C."),
    "temp.40": ("english", "Tested at 40 °C."),
    "temp.4": ("english", "Tested at 4°C."),
}

E4012 = {"pump.4012", "pump.4012-fr", "pump.both", "pump.plain"}
E4013 = {"pump.4013", "pump.4013-fr", "pump.both"}
REF118 = {"case.118", "case.118-fr", "case.spaced"}
SKU_B = {"sku.b", "sku.bare", "sku.joined"}
V231 = {"version.2.3.1", "version.bare"}
CPP = {"lang.cpp", "lang.cpp-fr", "lang.cpp17", "lang.slash"}
CJK = {"cjk.zh", "cjk.ja", "cjk.ko"}
IP = {"ip.10", "ip.port", "ip.word"}
PHONE = {"phone.intl", "phone.dots", "phone.joined", "phone.trunk", "phone.spaces"}
ISBN = {"isbn.dashes", "isbn.joined", "isbn.spaces"}
CVE = {"cve.5", "cve.fr"}
L121_3 = {"law.L121-3", "law.L121-3-joined"}
DAY = {"date.6", "date.stamp", "date.slashes"}
MONEY = {"money.en", "money.fr", "money.de"}

CASES: list[tuple[str, set[str]]] = [
    # The cases of the first prototype.
    ("E-4012", E4012),
    ("e-4012", E4012),
    ("E4012", E4012),
    ("REF-2024-118", REF118),
    ("TLS_HANDSHAKE_FAILED", {"tls.code"}),
    ("SKU 8842-B", SKU_B),
    ("v2.3.1", V231),
    ("C++", CPP),
    ("C#", {"lang.csharp", "lang.slash"}),
    ("foo_bar()", {"call.foo"}),
    ("what does error E-4012 mean?", E4012),
    ("que signifie l'erreur E-4012 ?", E4012),
    ("E\u20134012", E4012),
    ("E-4013", E4013),
    ("REF-2024-119", {"case.119"}),
    ("tls_handshake_failed", {"tls.code"}),
    ("SKU 8842-C", {"sku.c"}),
    ("v2.3.10", {"version.2.3.10"}),
    ("the tls handshake failed again", set()),
    ("the C language", set()),
    ("is the foo bar open", set()),
    # One code, however it is written.
    ("e 4012", E4012),
    ("E\u20114012", E4012),
    ("E\u22124012", E4012),
    ("E\u00a04012", E4012),
    ("E-\u00ad4012", E4012),
    ("\uff25\uff0d\uff14\uff10\uff11\uff12", E4012),
    ('"E-4012"', E4012),
    ("(E-4012)", E4012),
    ("«\u00a0E-4012\u00a0»", E4012),
    ("E-4012?!", E4012),
    ("...E-4012.", E4012),
    ("error:E-4012", E4012),
    ("l'E-4012", E4012),
    ("E-4012's cause", E4012),
    ("E-4012\u2014what is it?", E4012),
    ("错误E-4012", E4012),
    ("E-4012 or E-4013?", E4012 | E4013),
    ("E-4012/E-4013", E4012 | E4013),
    ("E-4012,E-4013", E4012 | E4013),
    ("4012", set()),
    ("E-401", {"pump.long"}),
    ("E-40", set()),
    ("F-4012", {"pump.other"}),
    ("E-5100", {"code.quoted"}),
    ("E-5200", {"code.quoted"}),
    ("E-5300", {"code.quoted"}),
    ("E-5400", {"code.quoted"}),
    ("E-5500", {"code.markup"}),
    ("E-5600", {"code.markup"}),
    ("E-5700", {"code.markup"}),
    ("E-6001", {"code.list"}),
    ("E-6002", {"code.list"}),
    ("E-6003", {"code.list"}),
    ("E-6004", {"code.list"}),
    ("E-6100", {"code.dash"}),
    ("E-6200", {"code.range"}),
    ("E-6209", {"code.range"}),
    ("E-6300", {"code.note"}),
    ("E-6400", {"code.colon"}),
    ("E-6500", {"code.soft"}),
    ("E-6600", {"code.wide"}),
    ("X210", {"code.trade"}),
    ("E-7012", CJK),
    ("エラーE-7012", CJK),
    ("错误E-7012发生", CJK),
    ("E-7013", {"cjk.zh-next"}),
    # Case, stock, part, order and issue numbers.
    ("ref-2024-118", REF118),
    ("REF 2024-118", REF118),
    ("INV-2024-118", {"case.invoice"}),
    ("où est l'accord REF-2024-118 ?", REF118),
    ("2024-118", REF118 | {"case.invoice"}),
    ("8842-B", SKU_B),
    ("SKU8842B", {"sku.joined", "sku.b"}),
    ("sku 8842-b", SKU_B),
    ("8842-D", set()),
    ("AB/123-4", {"part.123"}),
    ("ab/124-4", {"part.124"}),
    ("CD/123-4", {"part.other"}),
    ("where is order 10023456?", {"order.a", "order.po"}),
    ("10023457", {"order.b"}),
    ("issue #123", {"issue.123"}),
    ("#1234", {"issue.1234"}),
    # Versions.
    ("2.3.1", V231),
    ("version 2.3.1", V231),
    ("what changed in 2.3.1?", V231),
    ("V2.3.1", V231),
    ("v2.31", {"version.2.31"}),
    ("v2.3.1-rc1", {"version.candidate"}),
    ("v23.1", {"version.23.1"}),
    # Programming.
    ("c++", CPP),
    ("C++17", {"lang.cpp17"}),
    ("F#", {"lang.fsharp"}),
    ("c# dialog", {"lang.csharp", "lang.slash"}),
    (".NET", {"lang.net"}),
    ("is there a .net version?", {"lang.net"}),
    ("net income", set()),
    ("foo_bar2", {"call.foobar2"}),
    ("pg_stat_statements()", {"call.pg"}),
    ("à quoi sert pg_stat_statements ?", {"call.pg"}),
    ("std::vector", {"call.vector"}),
    ("std::string", {"call.string"}),
    ("obj.method2()", {"call.method2"}),
    ("__init__", {"call.dunder"}),
    ("init", set()),
    # Paths and addresses.
    ("/etc/nginx/nginx.conf", {"path.conf"}),
    ("where is /etc/nginx/nginx.conf.bak?", {"path.conf-bak"}),
    ("libfoo.so.1", {"path.foo"}),
    ("jane.doe@example.org", {"mail.jane"}),
    ("Jane.Doe@Example.org", {"mail.jane"}),
    ("janedoe@example.org", {"mail.janedoe"}),
    ("jane.doe+test@example.org", {"mail.plus"}),
    ("who is bob.ray@example.org?", {"mail.link"}),
    ("https://www.example.org/docs/page?id=42", {"url.42"}),
    ("https://example.org/docs/v3", {"url.v3"}),
    ("192.168.1.10", IP),
    ("192.168.1.1", {"ip.1"}),
    ("192.168.11.0", {"ip.110"}),
    ("192.168.1.10:8080", {"ip.port"}),
    ("IP 192.168.1.10", IP),
    ("2001:db8::ff00:42:8329", {"ip6.a", "ip6.long"}),
    ("2001:DB8:0:0:0:ff00:42:8329", {"ip6.a", "ip6.long"}),
    ("2001:db8::ff:42:8329", {"ip6.c"}),
    ("00:1a:2b:3c:4d:5e", {"mac.colons", "mac.dashes"}),
    ("00-1A-2B-3C-4D-5F", {"mac.next"}),
    ("550e8400-e29b-41d4-a716-446655440000", {"uuid.a", "uuid.bare"}),
    ("550e8400e29b41d4a716446655440001", {"uuid.b"}),
    ("3f2a9bc", {"git.full", "git.short"}),
    ("3f2a9bd", {"git.next"}),
    ("CVE-2024-12345", CVE),
    ("cve 2024-12345", CVE),
    ("CVE-2024-12346", {"cve.6"}),
    # Numbers that people group.
    ("FR76 3000 6000 0112 3456 7890 189", {"iban.grouped", "iban.joined"}),
    ("fr76 3000 6000 0112 3456 7890 189 is whose account?", {"iban.grouped", "iban.joined"}),
    ("IBAN FR7630006000011234567890189", {"iban.grouped", "iban.joined"}),
    ("GB29NWBK60161331926819", {"iban.gb"}),
    ("+33 1 23 45 67 89", PHONE),
    ("+33123456789", PHONE),
    ("0033 1 23 45 67 89", PHONE),
    ("01.23.45.67.89", PHONE | {"phone.belgian"}),
    ("0123456789", PHONE | {"phone.belgian"}),
    ("à qui est le 01 23 45 67 89 ?", PHONE | {"phone.belgian"}),
    ("+32 1 23 45 67 89", {"phone.belgian", "phone.dots", "phone.joined", "phone.spaces"}),
    ("01 23 45 67 98", {"phone.next"}),
    ("415-555-0132", {"phone.us", "phone.us-intl"}),
    ("+1 (415) 555-0132", {"phone.us", "phone.us-intl"}),
    ("978-2-07-036822-8", ISBN),
    ("ISBN 9782070368228", ISBN),
    ("978 2 07 036822 8", ISBN),
    ("207036822X", {"isbn.ten"}),
    ("732 829 320 00074", {"siret.spaces", "siret.joined"}),
    ("73282932000082", {"siret.next"}),
    ("2024-05-06", DAY),
    ("what ran on 2024-05-06?", DAY),
    ("2024/05/06", DAY),
    ("2024-05-06T10:30:00Z", {"date.stamp"}),
    ("06/05/2024", {"date.fr"}),
    ("€1,250.00", MONEY),
    ("1 250,00 €", MONEY),
    ("250.00", {"money.less"}),
    # Law.
    ("L. 121-3", L121_3),
    ("L121-3", L121_3),
    ("l 121-3", L121_3),
    ("que dit l'article L.\u00a0121-3 ?", L121_3),
    ("L. 12-13", {"law.L12-13"}),
    ("R. 121-3", {"law.R121-3"}),
    ("l'article r121-3", {"law.R121-3"}),
    ("L. 121-3-1", {"law.L121-3-1"}),
    ("121-3", set()),
    ("article 1240-1", {"law.1240-1"}),
    ("1240-1", {"law.1240-1"}),
    ("art. 1240", {"law.1240"}),
    ("Article 1241", {"law.1241"}),
    ("§ 823", {"law.823", "law.823-joined"}),
    ("§823 BGB", {"law.823", "law.823-joined"}),
    ("Article IV", {"law.IV"}),
    ("what does article vi say?", {"law.VI"}),
    ("décret 2023-1394", {"law.decree"}),
    ("Décret n° 2023-1395", {"law.decree-next"}),
    ("RFC 7231", {"rfc.7231"}),
    ("rfc7231", {"rfc.7231"}),
    ("what happened in 2024?", set()),
    # Matter and measure.
    ("H2SO4", {"chem.h2so4", "chem.subscript"}),
    ("H₂SO₄", {"chem.h2so4", "chem.subscript"}),
    ("2,4-dichlorophenoxyacetic acid", {"chem.24d"}),
    ("l'acide 3,4-dichlorophenoxyacetic", {"chem.34d"}),
    ("C6H12O6", {"chem.glucose"}),
    ("α2-macroglobulin", {"greek.alpha"}),
    ("Β2-macroglobulin", {"greek.beta"}),  # a Greek capital
    ("#Covid19", {"tag.covid", "tag.dash"}),
    ("covid-19", {"tag.covid", "tag.dash"}),
    ("12V", {"unit.12V", "unit.12 V"}),
    ("which 12 V battery?", {"unit.12V", "unit.12 V"}),
    ("12 W", {"unit.12W"}),
    ("3,5 kW", {"unit.3.5kW", "unit.3,5kW"}),
    ("5 kw", {"unit.5kW"}),
    ("10 mm", {"unit.10mm"}),
    ("10 μm", {"unit.10um"}),
    ("-40 °C", {"temp.-40"}),
    ("40°C", {"temp.40"}),
    ("4 ℃", {"temp.4"}),
]


@pytest.fixture(scope="module")
def corpus(services: Services, migrated_template: str) -> Iterator[Connection[Any]]:
    """One database with every row of the corpus, as the role that owns it."""
    name = "identifiers"
    with psycopg.connect(services.database_url, autocommit=True) as admin:
        admin.execute(f"create database {name} template {migrated_template}".encode())
        connection = connect(services.database_url.replace("/gristmill?", f"/{name}?"))
        for place, (key, (language, content)) in enumerate(CORPUS.items()):
            # Every vector points elsewhere, so that a question can point at the wrong row.
            embedding = str([1.0 if place % 8 == axis else 0.01 * (place // 8) for axis in range(8)])
            connection.execute(
                "insert into documents (language, content, embedding, metadata) values (%s, %s, %s, %s)",
                (language, content, embedding, Jsonb({"key": key})),
            )
        connection.execute("select refresh_statistics()")
        yield connection
        connection.close()
        admin.execute(f"drop database {name} with (force)".encode())


@pytest.mark.parametrize(("question", "expected"), CASES, ids=[question for question, _ in CASES])
def test_an_identifier_finds_its_rows_and_no_neighbour(
    corpus: Connection[Any], question: str, expected: set[str]
) -> None:
    rows = corpus.execute(
        "select metadata ->> 'key' from documents where fts @@ ("
        " select coalesce(string_agg(quote_literal(code), ' | '), '')::tsquery"
        " from unnest(identifier_lexemes(identifiers(%s, true))) as code)",
        (question,),
    ).fetchall()
    assert {row[0] for row in rows} == expected


# The vector of each question is that of its misleading row, a neighbour that must not come first.
RANKED: list[tuple[str, str, set[str]]] = [
    ("what does error E-4012 mean?", "pump.4013", E4012),
    ("que signifie le défaut e4013 ?", "pump.4012-fr", E4013),
    ("où est l'accord REF-2024-118 ?", "case.119", REF118),
    ("who saw TLS_HANDSHAKE_FAILED?", "tls.prose", {"tls.code"}),
    ("how many boxes of SKU 8842-B are left?", "sku.c", SKU_B),
    ("is the gasket AB/123-4 in stock?", "part.other", {"part.123"}),
    ("what is new in v2.3.1?", "version.2.3.10", V231),
    ("which driver is written in C++?", "lang.c", CPP),
    ("does it run on .NET?", "lang.nonet", {"lang.net"}),
    ("à quoi sert pg_stat_statements ?", "call.pg-other", {"call.pg"}),
    ("why is /usr/lib/x86_64/libfoo.so.1 missing?", "path.foo2", {"path.foo"}),
    ("/usr/lib/x86_64/libbar.so.1", "path.foo", {"path.bar"}),
    (r"what is installed in C:\Program Files\app2?", "path.windows-d", {"path.windows"}),
    (r"D:\Program Files\app2", "path.windows", {"path.windows-d"}),
    ("what does http://example.org/docs/v2/ hold?", "url.v3", {"url.v2"}),
    ("is jane.doe@example.org on holiday?", "mail.com", {"mail.jane"}),
    ("which host is 192.168.1.1?", "ip.10", {"ip.1"}),
    ("is CVE-2024-12345 patched?", "cve.6", CVE),
    ("whose account is FR76 3000 6000 0112 3456 7890 189?", "iban.next", {"iban.grouped", "iban.joined"}),
    ("who answers at +33 1 23 45 67 89?", "phone.next", PHONE),
    ("which backup ran on 2024-05-06?", "date.june", DAY),
    ("que fixe l'article L. 121-3 ?", "law.R121-3", L121_3),
    ("what does Article IV govern?", "law.VI", {"law.IV"}),
    ("is 2,4-dichlorophenoxyacetic acid sprayed?", "chem.34d", {"chem.24d"}),
    ("エラーE-7012とは", "cjk.zh-next", CJK),
]


@pytest.mark.parametrize(("question", "misleading", "expected"), RANKED, ids=[question for question, _, _ in RANKED])
def test_an_identifier_comes_first_though_the_vector_points_elsewhere(
    corpus: Connection[Any], question: str, misleading: str, expected: set[str]
) -> None:
    rows = corpus.execute(
        "select s.metadata ->> 'key' from search_documents(%s,"
        " (select embedding from documents where metadata ->> 'key' = %s)) with ordinality as"
        " s (id, content, metadata, score, vr, kr, ir, similarity, snippet, place) order by s.place",
        (question, misleading),
    ).fetchall()
    assert misleading not in expected
    assert {row[0] for row in rows[: len(expected)]} == expected


def test_tables_of_cases_are_sound() -> None:
    named = set().union(*(expected for _, expected in CASES), *(expected for _, _, expected in RANKED))
    assert named <= CORPUS.keys()
    assert {misleading for _, misleading, _ in RANKED} <= CORPUS.keys()
    questions = [question for question, _ in CASES]
    assert len(questions) == len(set(questions))


# Pieces of which texts are made that look like the identifiers above and are broken in some way.
FRAGMENTS = [
    *("a", "E", "f0", "9", "0", "12", "V", "é", "v1.", "fe80:", "Article I", "§ ", "°C", "€", "µ", "\u00b2", "\u2011"),
    *(" ", ".", ",", "/", "\\", ":", "::", "://", "C:\\", "-", "_", "@", "#", "++", "(", ")", "[", "{", "'", '"'),
]


@given(text=st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join), st.text(max_size=60)))
@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_text_has_keys_that_are_found_again(corpus: Connection[Any], text: str) -> None:
    text = text.replace("\0", "")
    row = corpus.execute("select identifiers(%(t)s), identifiers(%(t)s, true)", {"t": text}).fetchone()
    assert row is not None
    in_text, in_question = row
    for keys in (in_text, in_question):
        assert len(keys) == len(set(keys))
        assert all(2 <= len(key) <= 128 for key in keys)
    # A question that repeats an identifier of a text word for word finds the text.
    assert not in_question or not in_text or set(in_text) & set(in_question)


PIECES = [
    "a",
    "1",
    "1 ",
    "12 V ",
    "a-",
    "@",
    "a@b.",
    "/a",
    ":",
    "1,",
    "L 1 ",
    "C:\\a b ",
    "(",
    "0f",
    "aB3dE/7+",
    "E-{} ",
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_text_takes_no_more_than_its_length(corpus: Connection[Any], piece: str) -> None:
    # 50,000 characters in the time that a scan takes, not in its square.
    text = "".join(piece.replace("{}", str(number)) for number in range(50_000 // len(piece)))
    with corpus.transaction():
        corpus.execute("set local statement_timeout = '20s'")
        corpus.execute("select identifiers(%s, true)", (text,))


@pytest.mark.parametrize(
    "spellings",
    [("Étape-12", "ÉTAPE-12", "étape-12", "ETAPE-12"), ("Σ-9", "σ-9"), ("Ж-47", "ж-47"), ("ID-7", "id-7", "Id 7")],
    ids=lambda spellings: spellings[0],
)
@pytest.mark.parametrize("collation", ["C", "default", "pg_unicode_fast", "und-x-icu", "tr-x-icu"])
def test_letters_do_not_hang_on_the_locale(corpus: Connection[Any], collation: str, spellings: tuple[str, ...]) -> None:
    if corpus.execute("select from pg_collation where collname = %s", (collation,)).fetchone() is None:
        pytest.skip(f"this server has no collation {collation}")
    keys = {
        tuple(row[0])
        for spelling in spellings
        for row in corpus.execute(f'select identifiers(%s collate "{collation}", true)'.encode(), (spelling,))
    }
    assert len(keys) == 1
    assert keys != {()}
