package main

// typeNames maps schemas to their Go names, if those differ from the names in the contract.
var typeNames = map[string]string{
	"LinkList": "LinkPage", "TagList": "TagPage", "DomainCertificate": "Certificate", "DeliveryAttempt": "Attempt",
	"BulkItemError": "BulkItemFail",
}

// objectNames maps the objects that the contract defines inline to their Go names.
var objectNames = map[string]string{
	"Link.takenDown": "TakenDown", "Video.takenDown": "TakenDown", "Video.error": "VideoError", "CaptionList.data[]": "Caption",
	"LinkStats.days[]": "DayClicks", "LinkStats.referrers[]": "HostClicks", "LinkStats.countries[]": "CountryClicks",
	"LinkStats.devices[]": "DeviceClicks", "LinkStats.rules[]": "RuleClicks", "TagList.data[]": "Tag", "Domain.records[]": "DNSRecord",
	"BulkUpdate.set": "BulkSet", "BulkResults.results[]": "BulkResult", "BulkChanged.results[]": "BulkChange",
	"Account.limits": "AccountLimits", "Account.usage": "AccountUsage", "OperatorAccount.limits": "OwnLimits", "AccountUpdate.limits": "OwnLimitsUpdate",
	"Delivery.event": "DeliveryEvent",
}

// fieldNames maps fields to their Go names, if those differ from the names in the contract.
var fieldNames = map[string]string{
	"LinkSummary._id": "UnderscoreID", "VideoSummary._id": "UnderscoreID", "KeyCreated.key": "Secret", "DeviceCode.deviceCode": "Code",
}

// absentIsNotEmpty lists query parameters for which an empty value means something different from
// an absent one.
var absentIsNotEmpty = map[string]bool{"listEvents.after": true}

// bases lists schemas that begin with all fields from another schema. Go embeds that schema.
var bases = map[string]string{
	"Link": "LinkSummary", "LinkCreated": "BulkLink", "Video": "VideoSummary", "KeyCreated": "Key", "InvitationCreated": "Invitation",
	"WebhookCreated": "Webhook", "SignInLink": "MemberSignInLink",
}

// large lists whole numbers that may need 64 bits.
var large = []string{"home", "notFound", "ended", "clicks", "importedClicks", "total", "views", "storedBytes", "duration", "nextCursor", "min", "max", "links", "videos", "domains", "maxClicks"}

// comments contains the doc comments of types, without the leading name.
var comments = map[string]string{
	"LinkCreate":          "describes a new link. Only URL is required.",
	"LinkUpdate":          "changes a link. Absent fields do not change.",
	"LinkExplained":       "is the response that a visit to a link would get.",
	"SlugAvailable":       "reports whether a slug is available now.",
	"LinkRule":            "redirects visits that meet all its conditions to a separate URL.",
	"LinkRuleWhen":        "contains the conditions of a rule. At least one is required, and a visit must meet all of them.",
	"LinkSummary":         "is a link in a list.",
	"LinkPage":            "is one page of a list of links.",
	"LinkCreated":         "is the response to creating a link.",
	"Link":                "is the complete record of a link.",
	"LinkUpdated":         "is the response to updating a link.",
	"LinkStats":           "are the clicks on a link over a range of days.",
	"TakenDown":           "tells when and why the operator took a record down.",
	"BulkResult":          "is the result of an item: Data if Status is 201, otherwise Error.",
	"BulkLink":            "is a link in the response to a bulk request.",
	"BulkItemFail":        "tells why an item was rejected.",
	"BulkSet":             "contains the changes in a bulk update. Tags replaces all tags and cannot be combined with AddTags or RemoveTags.",
	"Domain":              "is a custom host name.",
	"Certificate":         "is the state of a domain's TLS certificate.",
	"DNSRecord":           "is a DNS record that the owner of a domain must create.",
	"VideoCreate":         "describes a new video. All fields are optional.",
	"VideoUpdate":         "changes a video. Absent fields do not change.",
	"VideoCreated":        "is the response to creating a video.",
	"VideoSummary":        "is a video in a list.",
	"Video":               "is the complete record of a video.",
	"VideoAccess":         "defines who may see a video, and how.",
	"VideoError":          "tells why a video failed.",
	"Rendition":           "is one size in which a video can be played.",
	"Caption":             "is one language of a video's captions.",
	"Account":             "is the API key's account.",
	"AccountLimits":       "are an account's limits. null means no limit.",
	"AccountUsage":        "is an account's current usage.",
	"Key":                 "is an API key without its secret.",
	"KeyCreate":           "describes a new API key.",
	"KeyCreated":          "is a new API key with its secret. The secret is not shown again.",
	"DeviceCode":          "is a request to a person for an API key. Show UserCode, open VerificationURL in the person's browser, and poll for the key every Interval seconds.",
	"Member":              "is a member of the account.",
	"Invitation":          "invites a person to become a member.",
	"SignInLink":          "is a one-time link for signing in to the console.",
	"Event":               "is one change to one record.",
	"Session":             "is a member's session in an event.",
	"EventSignInLink":     "is a member's one-time link in an event.",
	"Actor":               "is the author of a change.",
	"EventPage":           "is one page of the event feed.",
	"Webhook":             "is a subscription to events.",
	"WebhookCreated":      "is a new webhook with its secret. The secret is not shown again.",
	"WebhookCreate":       "describes a new webhook.",
	"WebhookUpdate":       "changes a webhook. Absent fields do not change.",
	"Delivery":            "is the delivery of one event to one webhook.",
	"Attempt":             "is one attempt at a delivery.",
	"Replay":              "is a time range of events that are sent again.",
	"OperatorAccount":     "is an account in the operator's API.",
	"Takedown":            "is a link or video that the operator took down.",
	"TakedownCreate":      "selects the record to take down. Set one of the first three fields.",
	"DayClicks":           "are the clicks on a UTC day.",
	"HostClicks":          "are the clicks from a referring host.",
	"CountryClicks":       "are the clicks from a country.",
	"DeviceClicks":        "are the clicks from a kind of device.",
	"RuleClicks":          "are the clicks that one of the link's rules redirected.",
	"BulkCreate":          "creates links. Each item succeeds or fails independently.",
	"BulkUpdate":          "applies one change to several links.",
	"BulkDelete":          "deletes several links.",
	"BulkChanged":         "contains the result for each link.",
	"BulkChange":          "is the result of one link: Data if Status is 200, otherwise Error.",
	"BulkChangeDone":      "is a link that was changed or deleted.",
	"BulkChangeFailed":    "is a link that was not changed.",
	"TagPage":             "is one page of the account's tags.",
	"Tag":                 "is a tag on links or videos.",
	"BulkAllCreated":      "is the response to a bulk request if all items were created.",
	"BulkResults":         "is the response to a bulk request if an item failed.",
	"BulkItemCreated":     "is an item that was created.",
	"BulkItemFailed":      "is an item that was rejected.",
	"DomainUpdate":        "changes a domain's pages. Absent fields do not change.",
	"DomainCreate":        "claims a host name.",
	"DomainList":          "is one page of the account's domains.",
	"VideoAccessUpdate":   "replaces a video's access settings.",
	"VideoThumbnail":      "selects a video's thumbnail.",
	"CaptionList":         "is one page of a video's captions.",
	"VideoUpdated":        "is the response to updating a video.",
	"VideoList":           "is one page of a list of videos.",
	"CaptionsStored":      "is the response to uploading captions.",
	"KeyRoll":             "requests a key's successor.",
	"KeyList":             "is one page of the account's keys.",
	"MemberList":          "is one page of the account's members.",
	"MemberSignInLink":    "is a one-time link for a member.",
	"MemberUpdate":        "changes a member. Absent fields do not change.",
	"InvitationCreate":    "invites a person.",
	"InvitationCreated":   "is a new invitation with its link. The link is not shown again.",
	"InvitationList":      "is one page of the open invitations.",
	"DeviceCodeCreate":    "starts a request to a person for an API key.",
	"DeviceCodeCollect":   "collects the key for a device code.",
	"SignInLinkCreate":    "requests a one-time link.",
	"AccountCreate":       "describes a new account.",
	"AccountUpdate":       "changes an account. Absent fields do not change.",
	"OwnLimitsUpdate":     "are exceptions to a plan's limits. Absent limits do not change. null restores the plan's limit.",
	"OwnLimits":           "are exceptions to a plan's limits. null means the plan's limit.",
	"OperatorAccountPage": "is one page of the accounts.",
	"FailingWebhook":      "is a webhook with a failed last attempt, in the operator's API.",
	"FailingWebhookPage":  "is one page of failing webhooks.",
	"TakedownPage":        "is one page of takedowns.",
	"WebhookReplay":       "requests that the events in a time range are sent again.",
	"WebhookList":         "is one page of the account's webhooks.",
	"DeliveryEvent":       "is the event in a delivery.",
	"DeliveryPage":        "is one page of a webhook's deliveries.",
}
